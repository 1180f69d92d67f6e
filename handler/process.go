package handler

import (
	"crypto/rand"
	"fmt"
	"os"
	"strings"
	"sync"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
)

// processQueues are the task queues that only this process polls, through which
// durable workflows ask for the calls that run in it: one for each client, which
// is one in all but tests. The worker behind one is made when it is first needed.
type processQueues struct {
	mu       sync.Mutex
	closed   bool
	byClient map[client.Client]processQueue
}

type processQueue struct {
	name   string
	worker worker.Worker // nil in a test environment
}

// processQueue returns the name of the process's task queue, which is being
// polled by then.
func (h *Handler) processQueue(c client.Client) (string, error) {
	q := &h.queues
	q.mu.Lock()
	defer q.mu.Unlock()
	if found, ok := q.byClient[c]; ok {
		return found.name, nil
	}
	if q.closed {
		return "", errStopping
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	queue := processQueue{name: fmt.Sprintf("nexusmcp/%s/%d/%s", idPart(host, 255), os.Getpid(), strings.ToLower(rand.Text()[:8]))}
	if !h.mocked {
		if queue.worker, err = newProcessWorker(c, queue.name); err == nil {
			for _, name := range h.order {
				h.services[name].registerRunning(queue.worker)
			}
			err = queue.worker.Start()
		}
		if err != nil {
			return "", fmt.Errorf("the process's own task queue: %w", err)
		}
	}
	if q.byClient == nil {
		q.byClient = make(map[client.Client]processQueue)
	}
	q.byClient[c] = queue
	return queue.name, nil
}

// registerRunning registers the activities that are about calls that run in this
// process.
func (s *service) registerRunning(registry interface {
	RegisterActivityWithOptions(any, activity.RegisterOptions)
}) {
	registry.RegisterActivityWithOptions(s.runningActivity, activity.RegisterOptions{Name: runningType(s.name)})
	registry.RegisterActivityWithOptions(s.cancelAttemptActivity, activity.RegisterOptions{Name: cancelAttemptType(s.name)})
}

// newProcessWorker returns a worker for the task queue. The SDK panics over a client
// that is not its own: one that an interceptor has wrapped, for example.
func newProcessWorker(c client.Client, queue string) (w worker.Worker, err error) {
	defer recovered(&err, fmt.Sprintf("a worker with the client %T: %%v", c))
	return worker.New(c, queue, worker.Options{
		DisableWorkflowWorker:              true,
		MaxConcurrentActivityExecutionSize: maxRunning,
		MaxConcurrentActivityTaskPollers:   4, // a batch is handed off all at once
		WorkerStopTimeout:                  reportTime,
	}), nil
}

// close ends the polling and waits until what the activities have to say is said.
func (q *processQueues) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for _, queue := range q.byClient {
		if queue.worker != nil {
			queue.worker.Stop()
		}
	}
	q.byClient = nil
}
