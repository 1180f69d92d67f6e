package handler

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/log"

	"github.com/nexusmcp/nexusmcp/internal/rude"
)

// What a tool declares has no operation of its own: the tests ask as the
// handler's core does.

// askable returns a published server without the handler around it.
func askable(t testing.TB, server Server) *service {
	t.Helper()
	server.Name = "s"
	require.Empty(t, server.validate())
	s := &service{name: server.Name, pool: newPool(server, 1<<20), takesArgument: server.Transport.takesArgument()}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		require.NoError(t, s.pool.close(ctx))
	})
	return s
}

func stdioServer(t testing.TB, options rude.Options) Command {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	return Command{Path: self, Env: options.Environ()}
}

func httpServer(t testing.TB, options rude.Options) (*rude.Server, HTTP) {
	t.Helper()
	server := rude.New(options)
	listener := httptest.NewServer(server)
	t.Cleanup(listener.Close)
	return server, HTTP{Endpoint: listener.URL}
}

// eachWay runs a test against a rude server over stdio, over HTTP, and over HTTP
// with event streams, in a protocol version without sessions and in one with.
func eachWay(t *testing.T, options rude.Options, test func(t *testing.T, server Server)) {
	t.Helper()
	for _, legacy := range []bool{false, true} {
		options := options
		options.Legacy = legacy
		version := map[bool]string{false: "2026-07-28", true: "2025-11-25"}[legacy]
		t.Run("over stdio, "+version, func(t *testing.T) { test(t, Server{Transport: stdioServer(t, options)}) })
		t.Run("over HTTP, "+version, func(t *testing.T) {
			_, transport := httpServer(t, options)
			test(t, Server{Transport: transport})
		})
		t.Run("over HTTP with event streams, "+version, func(t *testing.T) {
			options := options
			options.EventStream = true
			_, transport := httpServer(t, options)
			test(t, Server{Transport: transport})
		})
	}
}

func quiet() log.Logger { return slogless{} }

// slogless is a logger that drops everything.
type slogless struct{}

func (slogless) Debug(string, ...any) {}
func (slogless) Info(string, ...any)  {}
func (slogless) Warn(string, ...any)  {}
func (slogless) Error(string, ...any) {}

// asks returns the answer, for which there is plenty of time.
func asks(t testing.TB, s *service, argument, tool string) (destructive, known bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	return s.declaresDestructive(ctx, json.RawMessage(argument), tool, time.Now(), quiet())
}

func requireDeclares(t testing.TB, s *service, tool string, want bool) {
	t.Helper()
	destructive, known := asks(t, s, "", tool)
	require.True(t, known, tool)
	require.Equal(t, want, destructive, tool)
}

// eventuallyDeclares waits for a change that the server tells of beside its
// answers.
func eventuallyDeclares(t *testing.T, s *service, tool string, want bool) {
	t.Helper()
	require.Eventually(t, func() bool {
		destructive, known := asks(t, s, "", tool)
		return known && destructive == want
	}, 20*time.Second, time.Millisecond)
}

// use lends the test a connection of the pool, as a call gets one.
func use(t testing.TB, s *service, f func(*conn) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c, err := s.pool.acquire(ctx, nil, quiet())
	require.NoError(t, err)
	err = f(c)
	c.release(err)
	require.NoError(t, err)
}

// callTool calls a tool and returns its result.
func callTool(t testing.TB, s *service, tool, arguments string) (out string) {
	t.Helper()
	use(t, s, func(c *conn) error {
		raw, _, err := c.call(t.Context(), "tools/call", object{"name": encode(tool), "arguments": json.RawMessage(arguments)})
		out = string(raw)
		return err
	})
	return out
}

// age makes what is remembered older.
func age(s *service, by time.Duration) {
	d := s.pool.declarations
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.lists {
		l.taken, l.asked, l.tried = l.taken.Add(-by), l.asked.Add(-by), l.tried.Add(-by)
		for tool, since := range l.absent {
			l.absent[tool] = since.Add(-by)
		}
	}
}

const destructive = `{"destructiveHint":true}`

func TestAToolIsDestructiveIfItSaysSoAndNotThatItIsIdempotent(t *testing.T) {
	annotations := map[string]json.RawMessage{
		"huge":   json.RawMessage(destructive),
		"close":  json.RawMessage(`{"destructiveHint":true,"idempotentHint":false,"title":"Close"}`),
		"slow":   json.RawMessage(`{"destructiveHint":true,"idempotentHint":true}`),
		"silent": json.RawMessage(`{"destructiveHint":false}`),
		"status": json.RawMessage(`{"readOnlyHint":false}`),
		"noise":  json.RawMessage(`null`),
	}
	eachWay(t, rude.Options{Annotations: annotations}, func(t *testing.T, server Server) {
		s := askable(t, server)
		for tool, want := range map[string]bool{"huge": true, "close": true, "slow": false, "silent": false, "status": false, "noise": false, "echo": false, "no such tool": false} {
			requireDeclares(t, s, tool, want)
		}
	})
}

func TestManyAskersMakeOneList(t *testing.T) {
	server, transport := httpServer(t, rude.Options{Annotations: map[string]json.RawMessage{"huge": json.RawMessage(destructive)}})
	s := askable(t, Server{Transport: transport})
	answers := make(chan bool)
	for range 50 {
		go func() {
			destructive, known := s.declaresDestructive(t.Context(), nil, "huge", time.Now(), quiet())
			answers <- destructive && known
		}()
	}
	for range 50 {
		require.True(t, <-answers)
	}
	require.Equal(t, 1, server.Stats().Lists)
}

func TestToolsThatAreNotListedAreLookedUpOnceASecondHoweverManyThereAre(t *testing.T) {
	server, transport := httpServer(t, rude.Options{})
	s := askable(t, Server{Transport: transport})
	requireDeclares(t, s, "echo", false)
	began := time.Now()
	for wave := range 2 {
		unlisted := make(chan bool)
		for i := range 100 {
			go func() {
				destructive, known := asks(t, s, "", fmt.Sprint("invented ", wave, " ", i))
				unlisted <- known && !destructive
			}()
		}
		for range 100 {
			assert.True(t, <-unlisted)
		}
	}
	requireDeclares(t, s, "invented 0 0", false)
	assert.LessOrEqual(t, server.Stats().Lists, 2+int(time.Since(began)/listEvery))
	assert.Len(t, s.pool.declarations.lists[digest{}].tools.destructive, len(rude.Tools), "names that callers invent are not among them")
}

func TestNoMoreThanSoManyToolsAreRememberedAsAbsent(t *testing.T) {
	l := &toolList{tools: newToolSet(nil)}
	seek := func(i int, begins, since time.Time) (tools map[digest]string) {
		inquiry := &inquiry{begins: begins, sought: make(map[digest]string)}
		for n := range maxAbsent {
			inquiry.seek(fmt.Sprint(i, " ", n), since)
			inquiry.seek(strings.Repeat("x", maxSought+1), since)
		}
		return inquiry.sought
	}
	now := time.Now()
	assert.Empty(t, seek(0, now, now.Add(1)), "it may have missed what is new")
	for i := range 3 {
		l.looked(seek(i, now, now), l.tools, now)
		assert.Len(t, l.absent, maxAbsent)
	}
	assert.False(t, l.mayHave("0 7", now.Add(askAgainAfter-1)))
	assert.True(t, l.mayHave("0 7", now.Add(askAgainAfter)))
	assert.True(t, l.mayHave("2 7", now))
	now = now.Add(askAgainAfter)
	l.looked(seek(3, now, now), l.tools, now)
	assert.Len(t, l.absent, maxAbsent)
	assert.False(t, l.mayHave("3 7", now))
}

func TestAToolThatWasNotListedIsLookedUpAgainAfterAWhile(t *testing.T) {
	server, transport := httpServer(t, rude.Options{Pages: []int{1}})
	s := askable(t, Server{Transport: transport})
	requireDeclares(t, s, "huge", false)
	age(s, askAgainAfter)
	requireDeclares(t, s, "huge", false)
	requireDeclares(t, s, "huge", false)
	require.Equal(t, 2, server.Stats().Lists)
}

func TestAToolThatIsNewIsLookedUpWhenItIsCalled(t *testing.T) {
	server := mcp.NewServer(&mcp.Implementation{Name: "growing", Version: "1"}, nil)
	add := func(name string, destructive bool) {
		server.AddTool(&mcp.Tool{Name: name, InputSchema: map[string]any{"type": "object"}, Annotations: &mcp.ToolAnnotations{DestructiveHint: &destructive}},
			func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{}, nil
			})
	}
	add("old", false)
	listener := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(listener.Close)
	s := askable(t, Server{Transport: HTTP{Endpoint: listener.URL}})
	requireDeclares(t, s, "old", false)
	for _, name := range []string{"wipe", "erase"} {
		add(name, true)
		requireDeclares(t, s, name, true)
	}
}

func TestAListThatIsUnderWayDoesNotAnswerForAToolThatIsNew(t *testing.T) {
	inner := rude.New(rude.Options{})
	listing, list := make(chan struct{}, 10), make(chan struct{})
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Method") == "tools/list" {
			recorded := httptest.NewRecorder()
			inner.ServeHTTP(recorded, r) // as it is now
			listing <- struct{}{}
			<-list
			maps.Copy(w.Header(), recorded.Header())
			_, _ = w.Write(recorded.Body.Bytes())
			return
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(listener.Close)
	s := askable(t, Server{Transport: HTTP{Endpoint: listener.URL}})
	first := make(chan bool)
	go func() {
		_, known := s.declaresDestructive(t.Context(), nil, "unlisted", time.Now(), quiet())
		first <- known
	}()
	<-listing
	began := time.Now()
	asked := s.pool.declarations.memory(nil).now()
	second := make(chan bool)
	go func() {
		_, known := s.declaresDestructive(t.Context(), nil, "unlisted too", began, quiet())
		second <- known
	}()
	require.Eventually(t, func() bool { return s.pool.declarations.memory(nil).now() > asked }, 20*time.Second, time.Millisecond, "it waits too")
	close(list)
	assert.True(t, <-first)
	assert.True(t, <-second)
	assert.Equal(t, 2, inner.Stats().Lists, "the second was asked for after the first was begun")
}

func TestOneListAnswersForAllToolsThatWereSoughtBeforeIt(t *testing.T) {
	server, transport := httpServer(t, rude.Options{})
	s := askable(t, Server{Transport: transport})
	since := time.Now()
	for i := range 50 {
		destructive, known := s.declaresDestructive(t.Context(), nil, fmt.Sprint("unlisted ", i), since, quiet())
		require.True(t, known)
		require.False(t, destructive)
	}
	require.Equal(t, 1, server.Stats().Lists)
}

func TestEveryCompleteListReplacesWhatIsRemembered(t *testing.T) {
	// Nobody tells the handler of the change.
	server, transport := httpServer(t, rude.Options{Annotations: map[string]json.RawMessage{"huge": json.RawMessage(destructive)}})
	s := askable(t, Server{Transport: transport})
	requireDeclares(t, s, "huge", true)
	callTool(t, s, "list-changed", `{"annotations":{"slow":`+destructive+`}}`)
	requireDeclares(t, s, "slow", false)

	list := func(params object) {
		use(t, s, func(c *conn) error {
			_, err := c.list(t.Context(), listTools, params, 0)
			return err
		})
	}
	list(object{"cursor": encode("page-0")})
	requireDeclares(t, s, "slow", false) // it may be half of a list
	list(object{})
	requireDeclares(t, s, "slow", true)
	requireDeclares(t, s, "huge", false)
	require.Equal(t, 3, server.Stats().Lists, "nobody but the test listed anew")
}

func TestAToolThatACallersListDoesNotHaveIsLookedUpOnce(t *testing.T) {
	lists := atomic.Int32{}
	inner := rude.New(rude.Options{Annotations: map[string]json.RawMessage{"huge": json.RawMessage(destructive)}})
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Method") == "tools/list" && lists.Add(1) == 1 {
			answerWith(w, r, `"result":{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"private"}`)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(listener.Close)
	s := askable(t, Server{Transport: HTTP{Endpoint: listener.URL}})
	use(t, s, func(c *conn) error {
		_, err := c.list(t.Context(), listTools, object{}, 0)
		return err
	})
	requireDeclares(t, s, "huge", true)
	require.EqualValues(t, 2, lists.Load())
	for range 3 {
		requireDeclares(t, s, "no such tool", false)
	}
	require.EqualValues(t, 3, lists.Load(), "it may have come since")
}

// answerWith answers a JSON-RPC request.
func answerWith(w http.ResponseWriter, r *http.Request, resultOrError string) {
	var m struct {
		ID json.RawMessage `json:"id"`
	}
	body, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(body, &m)
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%s}`, m.ID, resultOrError)
}

func TestWordOfAChangeMakesTheNextCallListTheTools(t *testing.T) {
	options := rude.Options{ListChanged: true, Annotations: map[string]json.RawMessage{"huge": json.RawMessage(destructive)}}
	legacy := options
	legacy.Legacy = true
	_, overHTTP := httpServer(t, legacy)
	for name, server := range map[string]Server{
		"over stdio, where the SDK subscribes":         {Transport: stdioServer(t, options)},
		"over stdio, with sessions":                    {Transport: stdioServer(t, legacy), Stateless: true},
		"over HTTP, with sessions, in a call's stream": {Transport: overHTTP, Stateless: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := askable(t, server)
			requireDeclares(t, s, "huge", true)
			callTool(t, s, "list-changed", `{"annotations":{"slow":`+destructive+`}}`)
			eventuallyDeclares(t, s, "slow", true)
			requireDeclares(t, s, "huge", false)
		})
	}
}

func TestOverHTTPNoStreamIsOpenedForChangesAlone(t *testing.T) {
	server, transport := httpServer(t, rude.Options{ListChanged: true})
	s := askable(t, Server{Transport: transport})
	requireDeclares(t, s, "huge", false)
	require.Zero(t, server.Stats().Subscriptions)

	s = askable(t, Server{Transport: stdioServer(t, rude.Options{ListChanged: true})})
	// The server may take it up beside the call.
	require.Eventually(t, func() bool {
		return strings.Contains(callTool(t, s, "stats", `{}`), `"subscriptions":1`)
	}, 20*time.Second, time.Millisecond)
}

func TestWordOfAChangeOnASessionThatListedNothingIsNotHeeded(t *testing.T) {
	s := askable(t, Server{Transport: stdioServer(t, rude.Options{Legacy: true, ListChanged: true})})
	requireDeclares(t, s, "huge", false)
	use(t, s, func(listed *conn) error { // has the connection on which that was asked
		require.NotNil(t, listed.tools.Load())
		use(t, s, func(fresh *conn) error {
			require.Nil(t, fresh.tools.Load())
			if _, _, err := fresh.call(t.Context(), "tools/call", object{"name": encode("list-changed")}); err != nil {
				return err
			}
			awaitNotifications(t, fresh)
			return nil
		})
		require.NotNil(t, s.pool.declarations.lists[digest{}].tools)

		if _, _, err := listed.call(t.Context(), "tools/call", object{"name": encode("list-changed")}); err != nil {
			return err
		}
		awaitNotifications(t, listed)
		require.Nil(t, s.pool.declarations.lists[digest{}].tools)
		return nil
	})
}

// awaitNotifications returns when the connection has handled what it was told
// until now: notifications are handled one after the other.
func awaitNotifications(t testing.TB, c *conn) {
	t.Helper()
	handled := make(chan struct{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	go func() {
		_, _, _ = c.call(withProgress(ctx, "last", func(mcp.ProgressNotificationParams) { close(handled) }), "tools/call",
			object{"name": encode("slow"), "arguments": json.RawMessage(`{"ms":60000}`)})
	}()
	select {
	case <-handled:
	case <-ctx.Done():
		t.Fatal("no progress")
	}
}

func TestAListThatChangesWhileItIsReadIsNotRemembered(t *testing.T) {
	s := askable(t, Server{Transport: stdioServer(t, rude.Options{})})
	requireDeclares(t, s, "huge", false)
	memory := s.pool.declarations.memory(nil)
	before := memory.now()
	memory.forget()
	stale := newToolSet([]*mcp.Tool{{Name: "gone"}})
	memory.remember(stale, before)
	require.Nil(t, s.pool.declarations.lists[digest{}].tools)
	memory.remember(stale, memory.now())
	require.Same(t, stale, s.pool.declarations.lists[digest{}].tools)
}

func TestAnOldListServesWhileItIsRenewed(t *testing.T) {
	server, transport := httpServer(t, rude.Options{Annotations: map[string]json.RawMessage{"huge": json.RawMessage(destructive)}})
	s := askable(t, Server{Transport: transport})
	requireDeclares(t, s, "huge", true)
	callTool(t, s, "list-changed", `{"annotations":{}}`)
	age(s, relistAfter+time.Second)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	destructive, known := s.declaresDestructive(ended, nil, "huge", time.Now(), quiet())
	require.True(t, destructive && known, "it does not wait")
	eventuallyDeclares(t, s, "huge", false)
	require.Equal(t, 2, server.Stats().Lists)
}

func TestAServerThatDoesNotListItsToolsDeclaresNothing(t *testing.T) {
	for name, answer := range map[string]string{
		"method not found": `"error":{"code":-32601,"message":"no"}`,
		"no list":          `"result":{"resultType":"complete","tools":7}`,
		"too large a list": `"result":{"resultType":"complete","tools":[{"name":"huge","inputSchema":{},"description":"` + strings.Repeat("x", 2<<20) + `"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			var lists atomic.Int32
			inner := rude.New(rude.Options{})
			listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Mcp-Method") == "tools/list" {
					lists.Add(1)
					answerWith(w, r, answer)
					return
				}
				inner.ServeHTTP(w, r)
			}))
			t.Cleanup(listener.Close)
			s := askable(t, Server{Transport: HTTP{Endpoint: listener.URL}})
			requireDeclares(t, s, "huge", false)
			requireDeclares(t, s, "slow", false)
			require.EqualValues(t, 1, lists.Load())
		})
	}
	t.Run("no tools", func(t *testing.T) {
		server := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)
		s := askable(t, Server{Transport: InProcess{Server: server}})
		requireDeclares(t, s, "huge", false)
	})
}

func TestAListThatCannotBeReadDoesNotMakeHarmlessWhatWasDestructive(t *testing.T) {
	answers := map[string]string{
		"method not found": `"error":{"code":-32601,"message":"no"}`,
		"no list":          `"result":{"resultType":"complete","tools":[{"name":5}]}`,
		"too large a list": `"result":{"resultType":"complete","tools":[{"name":"huge","inputSchema":{},"description":"` + strings.Repeat("x", 2<<20) + `"}]}`,
	}
	for _, changed := range []bool{false, true} {
		for name, answer := range answers {
			t.Run(fmt.Sprintf("%s, changed: %v", name, changed), func(t *testing.T) {
				var refuses atomic.Bool
				var lists atomic.Int32
				inner := rude.New(rude.Options{Annotations: map[string]json.RawMessage{"huge": json.RawMessage(destructive)}})
				listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Header.Get("Mcp-Method") == "tools/list" {
						if lists.Add(1); refuses.Load() {
							answerWith(w, r, answer)
							return
						}
					}
					inner.ServeHTTP(w, r)
				}))
				t.Cleanup(listener.Close)
				s := askable(t, Server{Transport: HTTP{Endpoint: listener.URL}})
				requireDeclares(t, s, "huge", true)
				refuses.Store(true)
				if changed { // as the server says
					s.pool.declarations.memory(nil).forget()
					require.True(t, s.pool.declarations.recall(digest{}, "huge"))
					requireDeclares(t, s, "huge", true)
				}
				requireDeclares(t, s, "invented", false)
				requireDeclares(t, s, "invented", false)
				requireDeclares(t, s, "huge", true)
				require.LessOrEqual(t, lists.Load(), int32(3), "a name that is not there is remembered")
			})
		}
	}
}

func TestAServerThatCannotListItsToolsNowIsAskedAgain(t *testing.T) {
	for name, fail := range map[string]func(w http.ResponseWriter, r *http.Request){
		"HTTP 503": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
		"HTTP 401": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
		"an internal error": func(w http.ResponseWriter, r *http.Request) {
			answerWith(w, r, `"error":{"code":-32603,"message":"no"}`)
		},
		"a connection that closes": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			var up atomic.Bool
			inner := rude.New(rude.Options{Annotations: map[string]json.RawMessage{"huge": json.RawMessage(destructive)}})
			listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Mcp-Method") == "tools/list" && !up.Load() {
					fail(w, r)
					return
				}
				inner.ServeHTTP(w, r)
			}))
			t.Cleanup(listener.Close)
			s := askable(t, Server{Transport: HTTP{Endpoint: listener.URL}})
			_, known := asks(t, s, "", "huge")
			require.False(t, known)
			up.Store(true)
			requireDeclares(t, s, "huge", true)
		})
	}
	t.Run("no connection", func(t *testing.T) {
		s := askable(t, Server{Transport: Command{Path: "/no/such/program"}})
		_, known := asks(t, s, "", "huge")
		require.False(t, known)
	})
}

func TestWhatAnEarlierListSaidIsReportedWhileTheServerCannotListItsTools(t *testing.T) {
	var away atomic.Bool
	inner := rude.New(rude.Options{Annotations: map[string]json.RawMessage{"huge": json.RawMessage(destructive)}})
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Method") == "tools/list" && away.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(listener.Close)
	s := askable(t, Server{Transport: HTTP{Endpoint: listener.URL}})
	requireDeclares(t, s, "huge", true)
	away.Store(true)
	s.pool.declarations.memory(nil).forget() // as when the server says that they changed
	for tool, want := range map[string]bool{"huge": true, "slow": false} {
		declared, known := asks(t, s, "", tool)
		require.False(t, known)
		require.Equal(t, want, declared, tool)
		declared, known = s.declaresDestructive(noTime, nil, tool, time.Now(), quiet())
		require.False(t, known)
		require.Equal(t, want, declared, tool)
	}
}

func TestWhoeverDoesNotWaitDoesNotKnowAndTheNextDoes(t *testing.T) {
	release := make(chan struct{})
	var lists atomic.Int32
	inner := rude.New(rude.Options{Annotations: map[string]json.RawMessage{"huge": json.RawMessage(destructive)}})
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Method") == "tools/list" {
			lists.Add(1)
			<-release
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(listener.Close)
	s := askable(t, Server{Transport: HTTP{Endpoint: listener.URL}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, known := s.declaresDestructive(ctx, nil, "huge", time.Now(), quiet())
	require.False(t, known)
	close(release)
	requireDeclares(t, s, "huge", true)
	require.EqualValues(t, 1, lists.Load(), "the first one's list goes on")
}

func TestAHandlerThatStopsKnowsNothingNew(t *testing.T) {
	s := askable(t, Server{Transport: stdioServer(t, rude.Options{})})
	require.NoError(t, s.pool.close(t.Context()))
	_, known := asks(t, s, "", "huge")
	require.False(t, known)
}

func TestEachFactoryArgumentHasItsOwnToolsAndTheLastUsedAreRemembered(t *testing.T) {
	var opened atomic.Int32
	s := askable(t, Server{Transport: ArgumentFactory(func(ctx context.Context, argument json.RawMessage) (mcp.Transport, error) {
		opened.Add(1)
		server := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)
		yes := strings.HasSuffix(string(argument), "0")
		server.AddTool(&mcp.Tool{Name: "delete", InputSchema: map[string]any{"type": "object"}, Annotations: &mcp.ToolAnnotations{DestructiveHint: &yes}}, nil)
		return InProcess{Server: server}.open(ctx, nil, environment{logger: quiet(), limit: 1 << 20})
	})})
	begun := opened.Load() // by validate
	for i := range maxToolLists + 6 {
		destructive, known := asks(t, s, fmt.Sprint(i), "delete")
		require.True(t, known)
		require.Equal(t, i%10 == 0, destructive, i)
		_, known = asks(t, s, "0", "delete") // never the one that goes
		require.True(t, known)
	}
	require.EqualValues(t, maxToolLists+6, opened.Load()-begun)
	require.Len(t, s.pool.declarations.lists, maxToolLists)
	_, known := asks(t, s, "1", "delete")
	require.True(t, known)
	require.EqualValues(t, maxToolLists+7, opened.Load()-begun, "it was forgotten")
}

func TestACallGetsTheConnectionOnWhichTheToolsWereListed(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		s := askable(t, Server{Transport: stdioServer(t, rude.Options{Legacy: legacy})})
		requireDeclares(t, s, "huge", false)
		require.Contains(t, callTool(t, s, "stats", `{}`), `"lists":1`)
	}
}

func TestALongToolListIsRememberedAsFarAsItMatters(t *testing.T) {
	yes := true
	deadly := &mcp.ToolAnnotations{DestructiveHint: &yes}
	many := func(annotations *mcp.ToolAnnotations) (tools []*mcp.Tool) {
		for i := range 50_000 {
			tools = append(tools, &mcp.Tool{Name: fmt.Sprint("tool-", i), Annotations: annotations})
		}
		return append(tools, &mcp.Tool{Name: "last", Annotations: deadly})
	}
	set := newToolSet(many(nil))
	assert.Less(t, len(set.destructive), maxToolNames/toolNameOverhead)
	destructive, known := set.of("last")
	assert.True(t, destructive && known)
	_, known = set.of("tool-49999")
	assert.False(t, known)

	set = newToolSet(many(deadly))
	assert.Less(t, len(set.destructive), maxToolNames/toolNameOverhead)
	destructive, known = set.of("tool-49999")
	assert.True(t, destructive && known, "it may be one of those that are not remembered")
}

func TestAToolThatIsListedTwiceIsDestructiveIfOneOfThemIs(t *testing.T) {
	yes := true
	set := newToolSet([]*mcp.Tool{{Name: "t", Annotations: &mcp.ToolAnnotations{DestructiveHint: &yes}}, {Name: "t"}})
	destructive, _ := set.of("t")
	require.True(t, destructive)
}

func TestAKnownToolIsLookedUpWithoutAnAllocation(t *testing.T) {
	s := askable(t, Server{Transport: stdioServer(t, rude.Options{})})
	requireDeclares(t, s, "huge", false)
	logger := quiet()
	require.Zero(t, testing.AllocsPerRun(100, func() { s.declaresDestructive(t.Context(), nil, "huge", time.Now(), logger) }))
}

func BenchmarkAKnownToolIsLookedUp(b *testing.B) {
	s := askable(b, Server{Transport: stdioServer(b, rude.Options{})})
	requireDeclares(b, s, "huge", false)
	logger, ctx := quiet(), b.Context()
	for b.Loop() {
		s.declaresDestructive(ctx, nil, "huge", time.Now(), logger)
	}
}

// The SDK's own server, whose transports differ from the rude one's.
func TestTheSDKsServersAreHeardWhenTheirToolsChange(t *testing.T) {
	eachSDKServer(t, func(t *testing.T, server *mcp.Server, published Server) {
		s := askable(t, published)
		requireDeclares(t, s, "wait", false)
		yes := true
		server.AddTool(&mcp.Tool{Name: "wait", InputSchema: map[string]any{"type": "object"}, Annotations: &mcp.ToolAnnotations{DestructiveHint: &yes}}, nil)
		if _, ok := published.Transport.(HTTP); ok {
			age(s, relistAfter+time.Second) // nobody says so
		}
		eventuallyDeclares(t, s, "wait", true)
	})
}

// eachSDKServer runs a test against a server of the SDK's, over each transport
// and in a protocol version without sessions and in one with.
func eachSDKServer(t *testing.T, test func(t *testing.T, server *mcp.Server, published Server)) {
	t.Helper()
	for _, version := range []string{"2026-07-28", "2025-11-25"} {
		newServer := func(t *testing.T) *mcp.Server {
			server := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)
			server.AddTool(&mcp.Tool{Name: "wait", InputSchema: map[string]any{"type": "object"}}, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				for i := range 3 {
					if err := req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: req.Params.GetProgressToken(), Progress: float64(i + 1), Total: 3, Message: "waiting"}); err != nil {
						return nil, err
					}
				}
				select {
				case <-ctx.Done():
				case <-t.Context().Done(): // a stateless server does not hear of a cancellation
				}
				return &mcp.CallToolResult{}, nil
			})
			return server
		}
		t.Run("in process, "+version, func(t *testing.T) {
			server := newServer(t)
			test(t, server, Server{Transport: InProcess{Server: server}, ProtocolVersion: version})
		})
		t.Run("over HTTP, "+version, func(t *testing.T) {
			server := newServer(t)
			listener := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: version == "2026-07-28"}))
			t.Cleanup(listener.Close)
			test(t, server, Server{Transport: HTTP{Endpoint: listener.URL}, ProtocolVersion: version})
		})
		if version == "2026-07-28" {
			continue // the transport is older
		}
		t.Run("over SSE, "+version, func(t *testing.T) {
			server := newServer(t)
			listener := httptest.NewServer(mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return server }, nil))
			t.Cleanup(listener.Close)
			test(t, server, Server{Transport: SSE{Endpoint: listener.URL}, ProtocolVersion: version})
		})
	}
}
