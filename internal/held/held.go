// Package held counts what a process holds, so that a test can tell what it leaks.
package held

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// Resources are what a process may leak.
type Resources struct {
	Goroutines int `json:"goroutines"`
	Files      int `json:"files"`    // open files; zero where there is no /proc
	Children   int `json:"children"` // child processes; likewise
	Heap       int `json:"heap"`     // in bytes
}

// Now counts what this process holds, after garbage was collected.
func Now() Resources {
	r := Resources{Goroutines: runtime.NumGoroutine()}
	files, _ := os.ReadDir("/proc/self/fd")
	r.Files = len(files)
	tasks, _ := filepath.Glob("/proc/self/task/*/children")
	for _, task := range tasks {
		children, _ := os.ReadFile(task) // the thread may have ended
		r.Children += len(strings.Fields(string(children)))
	}
	runtime.GC()
	runtime.GC() // what finalizers freed
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	r.Heap = int(memory.HeapAlloc)
	return r
}
