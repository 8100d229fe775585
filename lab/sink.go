package lab

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"mpbond/base/unit"
)

// Received is what the receiving end saw of one transfer.
type Received struct {
	Bytes int64   `json:"bytes"`
	SHA   string  `json:"sha256"`
	Gap   float64 `json:"gap"` // longest time without a byte, after the first
}

// byteCounter tells others how far a transfer is.
type byteCounter struct{ n atomic.Int64 }

func (m *byteCounter) total() unit.Bytes { return unit.Bytes(m.n.Load()) }

// receiveAll reads all of r and watches it; with a length, what comes later than
// that does not count.
func receiveAll(r io.Reader, m *byteCounter, length time.Duration) (Received, error) {
	hash, buf := sha256.New(), make([]byte, 1<<16)
	var got Received
	var last time.Time
	begin := time.Now()
	for {
		n, err := r.Read(buf)
		if now := time.Now(); n > 0 && (length == 0 || now.Sub(begin) <= length) {
			if got.Bytes > 0 {
				got.Gap = max(got.Gap, now.Sub(last).Seconds())
			}
			last = now
			got.Bytes += int64(n)
			m.n.Add(int64(n))
			hash.Write(buf[:n])
		}
		if err != nil {
			got.SHA = hex.EncodeToString(hash.Sum(nil))
			if err == io.EOF {
				err = nil
			}
			return got, err
		}
	}
}

// lastReportPath is where the sink tells what it received last.
const lastReportPath = "/last"

// RunSink serves uploads: it takes the body of any request and answers with what
// it Received, until ctx ends; of a request with "?seconds=S" only what comes
// within that time. /last tells of an upload that was broken off. Its listener
// speaks MPTCP to whoever asks for it.
func RunSink(ctx context.Context, addr string) error {
	var mu sync.Mutex
	var last Received
	s := &http.Server{Addr: addr, ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == lastReportPath {
			mu.Lock()
			defer mu.Unlock()
			_ = json.NewEncoder(w).Encode(last)
			return
		}
		length, _ := time.ParseDuration(r.URL.Query().Get("seconds") + "s") // 0 if it is not there
		if length > 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(length))
		}
		got, err := receiveAll(r.Body, &byteCounter{}, length)
		mu.Lock()
		last = got
		mu.Unlock()
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_ = json.NewEncoder(w).Encode(got)
	})}
	defer context.AfterFunc(ctx, func() { s.Close() })()
	return s.ListenAndServe()
}
