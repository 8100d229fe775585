// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// RunExchange serves requests with bytes in both directions until ctx ends. It reads the body of
// any request and answers "?down=N" with the first N bytes of a file. The listener speaks MPTCP
// with clients that ask for it.
func RunExchange(ctx context.Context, addr, blobFile string) error {
	blob, err := mapFile(blobFile)
	if err != nil {
		return fmt.Errorf("exchange: %w", err)
	}
	s := &http.Server{Addr: addr, ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n, err := strconv.ParseUint(r.URL.Query().Get("down"), 10, 63)
			if err != nil || n > uint64(len(blob)) {
				http.Error(w, fmt.Sprintf("down: write a number up to %d", len(blob)), http.StatusBadRequest)
				return
			}
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			w.Header().Set("Content-Length", strconv.FormatUint(n, 10))
			_, _ = w.Write(blob[:n]) // the client notices what is missing
		})}
	defer context.AfterFunc(ctx, func() { s.Close() })()
	return s.ListenAndServe()
}
