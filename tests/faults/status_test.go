//go:build unix

package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/nexusmcp/nexusmcp/internal/effects"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
	"github.com/nexusmcp/nexusmcp/tests/faults/workers"
)

func TestAnHTTPStatusIsRetriedAsTheContractSays(t *testing.T) {
	forEachExecution(t, func(t *testing.T, execution mcpnexus.Execution) {
		s := newSite(t, siteOptions{Services: []string{overHTTP, overHTTPLegacy}})
		s.startWorker(t)
		const firstBackoff = time.Second // Temporal's default
		for _, c := range []struct {
			status     int
			retryAfter string
			// again is the least time until the request is sent again; zero means at
			// once, in another session.
			again     time.Duration
			permanent bool
			services  []string
		}{
			{status: 500, again: firstBackoff},
			{status: 502, again: firstBackoff},
			{status: 503, again: firstBackoff},
			{status: 503, retryAfter: "4", again: 4 * time.Second},
			{status: 429, retryAfter: "4", again: 4 * time.Second},
			{status: 401, permanent: true},
			{status: 404, permanent: true, services: []string{overHTTP}},
			{status: 404, services: []string{overHTTPLegacy}}, // the session is lost
		} {
			for _, service := range s.services {
				if c.services != nil && c.services[0] != service.Service {
					continue
				}
				name := fmt.Sprintf("%d %s %s", c.status, c.retryAfter, service.Service)
				start := func(refuse int, policy *temporal.RetryPolicy) *running {
					return s.start(t, service, workers.Call{
						Arguments: effects.Arguments{Call: name + " ", Refuse: refuse, Status: c.status, RetryAfter: c.retryAfter},
						Options:   mcpnexus.RequestOptions{Execution: execution, RetryPolicy: policy},
					}, client.StartWorkflowOptions{})
				}
				retried := start(1, nil)
				once := start(10, &temporal.RetryPolicy{MaximumAttempts: 1})
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					if c.permanent {
						failure := retried.requireFailure(t, mcpnexus.ErrorTypeTransport, 0)
						assert.Equal(t, c.status, failure.HTTPStatus)
						assert.True(t, failure.NonRetryable)
						assert.Len(t, retried.entries(t, effects.Refused), 1)
						return
					}
					retried.requireSuccess(t, 1)
					refused := retried.entries(t, effects.Refused)
					if assert.Len(t, refused, 1) {
						gap := retried.entries(t, effects.Began)[0].Time.Sub(refused[0].Time)
						// Temporal's timers count whole milliseconds.
						assert.GreaterOrEqual(t, gap, c.again-5*time.Millisecond)
						assert.Less(t, gap, c.again+slowdown*14*time.Second)
					}
				})
				t.Run(name+", at most once", func(t *testing.T) {
					t.Parallel()
					failure := once.requireFailure(t, mcpnexus.ErrorTypeTransport, 0)
					assert.Equal(t, c.status, failure.HTTPStatus)
					if c.again > 0 || c.permanent {
						assert.Len(t, once.entries(t, effects.Refused), 1)
					}
				})
			}
		}
	})
}

func TestAJSONRPCErrorIsRetriedAsItsCodeSays(t *testing.T) {
	forEachExecution(t, func(t *testing.T, execution mcpnexus.Execution) {
		s := newSite(t, siteOptions{})
		s.startWorker(t)
		options := mcpnexus.RequestOptions{Execution: execution}
		retryable := s.startEach(t, workers.Call{Arguments: effects.Arguments{Call: "retryable ", Fail: 2, Code: -32603}, Options: options})
		permanent := s.startEach(t, workers.Call{Arguments: effects.Arguments{Call: "permanent ", Fail: 1, Code: -32602}, Options: options})
		each(t, retryable, func(t *testing.T, r *running) { r.requireSuccess(t, 3) })
		each(t, permanent, func(t *testing.T, r *running) {
			failure := r.requireFailure(t, mcpnexus.ErrorTypeProtocol, 1)
			assert.EqualValues(t, -32602, failure.Code)
		})
	})
}
