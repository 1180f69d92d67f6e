package main

import (
	"errors"
	"slices"
	"time"
)

// samples are the durations, or other numbers, of one series.
type samples []float64

func (s *samples) addTime(d time.Duration) { *s = append(*s, milliseconds(d)) }

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// quantile returns the value below which a share q of the samples lies.
func (s samples) quantile(q float64) float64 {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	// Between two samples it is where a straight line from one to the other is.
	at := q * float64(len(sorted)-1)
	below := int(at)
	above := min(below+1, len(sorted)-1)
	return sorted[below] + (at-float64(below))*(sorted[above]-sorted[below])
}

func (s samples) median() float64 { return s.quantile(0.5) }

// minus returns the differences round by round, which lose what slowed both.
func (s samples) minus(other samples) samples {
	out := make(samples, min(len(s), len(other)))
	for i := range out {
		out[i] = s[i] - other[i]
	}
	return out
}

// ratio divides the medians of two series.
func ratio(a, b *lane) (*float64, error) {
	if err := errors.Join(a.err, b.err); err != nil {
		return nil, err
	}
	return new(a.samples.median() / b.samples.median()), nil
}
