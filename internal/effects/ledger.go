package effects

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// An Event is something that a server did.
type Event string

const (
	// Started is a process that began to serve.
	Started Event = "started"
	// Connected is a handshake that was answered.
	Connected Event = "connected"
	// Muted is a handshake that is never answered, see Options.Mute.
	Muted Event = "muted"
	// Refused is a call that was answered with an HTTP status in place of a run,
	// see Arguments.Refuse.
	Refused Event = "refused"
	// Began is a run of a tool that began.
	Began Event = "began"
	// Effected is a run that had its effect: the first one with its idempotency key.
	Effected Event = "effected"
	// Finished is a run that came to its end.
	Finished Event = "finished"
	// Cancelled is a run that ended because its client cancelled the request on
	// the wire. Over HTTP without sessions, where a client cancels by closing the
	// request's stream, that cannot be told from a client that died.
	Cancelled Event = "cancelled"
	// Left is a run that ended with its server.
	Left Event = "left"
)

// An Entry is a line of a ledger.
type Entry struct {
	Event Event `json:"event"`
	// Time is the machine's clock, which the ledger's processes share.
	Time time.Time `json:"time"`
	// Server is the process that serves.
	Server int `json:"server"`
	// Client is the process that asked: the parent over stdio, and over HTTP what
	// the header [ClientHeader] says. Zero when unknown.
	Client int `json:"client,omitempty"`
	// Service is Options.Service.
	Service string `json:"service,omitempty"`
	// Tool is the tool of a run.
	Tool string `json:"tool,omitempty"`
	// Call is Arguments.Call of a run.
	Call string `json:"call,omitempty"`
	// Key is the idempotency key of a run, "" when it has none.
	Key string `json:"key,omitempty"`
}

// A Ledger is a file to which servers append what they do. Processes may share
// it, and it survives them: a line is one write, which a process that is killed
// has made or not made.
type Ledger string

// Append writes an entry down. It panics when it cannot: a run that is not
// written down would be one that a test does not see.
func (l Ledger) Append(e Entry) {
	e.Time = time.Now()
	line, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	f, err := os.OpenFile(string(l), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.Write(append(line, '\n'))
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		panic(fmt.Sprintf("effects: the ledger: %v", err))
	}
}

// Entries returns all entries that satisfy the condition, in the order in which
// they were written. A ledger that is not there yet has none.
func (l Ledger) Entries(satisfy func(Entry) bool) ([]Entry, error) {
	data, err := os.ReadFile(string(l))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var entries []Entry
	for line := range bytes.Lines(data) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // it is being written
		}
		var e Entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", l, line, err)
		}
		if satisfy(e) {
			entries = append(entries, e)
		}
	}
	return entries, nil
}

// count is how often a call, or everything when there is none, had an event.
func (l Ledger) count(service, call string, event Event) int {
	entries, err := l.Entries(func(e Entry) bool { return e.Service == service && e.Call == call && e.Event == event })
	if err != nil {
		panic(err)
	}
	return len(entries)
}

// effect has a run's effect, unless another run with the same idempotency key,
// in whichever process, has had it.
func (l Ledger) effect(e Entry) {
	if e.Key != "" {
		dir := string(l) + ".keys"
		if err := os.MkdirAll(dir, 0o700); err != nil {
			panic(err)
		}
		name := sha256.Sum256([]byte(e.Key))
		// The file system lets one of those who create a file win.
		f, err := os.OpenFile(filepath.Join(dir, hex.EncodeToString(name[:])), os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			return
		}
		if err != nil {
			panic(err)
		}
		f.Close()
	}
	e.Event = Effected
	l.Append(e)
}
