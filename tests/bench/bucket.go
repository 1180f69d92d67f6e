package main

import "time"

// A bucket foresees how the server limits the operations of one endpoint.
// (history.outboundQueue.hostScheduler.maxTaskRPS and its burst are both 100.) The
// zero value is full.
type bucket struct {
	missing float64 // of bucketSize tokens
	at      time.Time
}

const (
	bucketSize = 100
	bucketRate = 100 // a second
)

// take uses the tokens of n operations that begin now. It returns how many of
// them find none and will be delayed.
func (b *bucket) take(now time.Time, n int) (delayed int) {
	b.fill(now)
	b.missing += float64(n)
	return min(n, max(0, int(b.missing-bucketSize)))
}

// until returns the time until n tokens are there.
func (b *bucket) until(now time.Time, n int) time.Duration {
	b.fill(now)
	short := b.missing + float64(n) - bucketSize
	return time.Duration(max(0, short) / bucketRate * float64(time.Second))
}

func (b *bucket) fill(now time.Time) {
	if !b.at.IsZero() {
		b.missing = max(0, b.missing-now.Sub(b.at).Seconds()*bucketRate)
	}
	b.at = now
}
