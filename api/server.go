package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"mpbond/fault"
)

// Limits of the API server.
const (
	readTimeout    = 5 * time.Second
	maxHeader      = 16 << 10
	maxBody        = 4 << 10
	shutdownBudget = time.Second
)

// Role is what the API serves.
type Role struct {
	Describe Describe
	// Chunk takes a chunk mark; its errors are faults. Nil where there are none.
	Chunk func(Chunk) error
	// Inviter makes codes for pairing. Nil where there are none.
	Inviter *Inviter
}

// Describe tells what a role does now; with why, also why. It is called from
// many goroutines.
type Describe func(why bool) Status

// Serve answers on l until ctx ends, then returns nil. It closes l in any case.
func Serve(ctx context.Context, l net.Listener, r Role) error {
	srv := &http.Server{Handler: Handler(r), ReadTimeout: readTimeout, WriteTimeout: readTimeout, MaxHeaderBytes: maxHeader}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		budget, cancel := context.WithTimeout(context.Background(), shutdownBudget)
		defer cancel()
		if srv.Shutdown(budget) != nil {
			_ = srv.Close()
		}
	})
	err := srv.Serve(l)
	if !stop() { // ctx has ended
		<-stopped
	}
	_ = srv.Close()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("status socket: %w", err)
}

// Handler is the API as an HTTP handler.
func Handler(role Role) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, r *http.Request) {
		why, err := flag(r, "why")
		if err != nil {
			problem(w, http.StatusBadRequest, err)
			return
		}
		s := role.Describe(why)
		if s.Bonds == nil {
			s.Bonds = []Bond{}
		}
		for i := range s.Bonds {
			if s.Bonds[i].Paths == nil {
				s.Bonds[i].Paths = []Path{}
			}
		}
		send(w, http.StatusOK, "application/json", s)
	})
	mux.HandleFunc("/v1/status", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", "GET, HEAD")
		problem(w, http.StatusMethodNotAllowed, fault.New(fault.Usage, fmt.Errorf("%s cannot be answered here", r.Method), "use GET"))
	})
	if role.Chunk != nil {
		mux.HandleFunc("POST /v1/chunk", func(w http.ResponseWriter, r *http.Request) { takeChunk(w, r, role.Chunk) })
	}
	if i := role.Inviter; i != nil {
		mux.HandleFunc("GET /v1/invitation", func(w http.ResponseWriter, _ *http.Request) {
			send(w, http.StatusOK, "application/json", i.Current())
		})
		mux.HandleFunc("POST /v1/invitation", func(w http.ResponseWriter, _ *http.Request) {
			inv, err := i.Invite()
			if err != nil {
				problem(w, http.StatusConflict, err)
				return
			}
			send(w, http.StatusOK, "application/json", inv)
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		problem(w, http.StatusNotFound, fault.New(fault.NotFound, fmt.Errorf("there is no %.100q", r.URL.Path), "there are /v1/status; at a primary /v1/chunk; at server and helper /v1/invitation"))
	})
	return mux
}

func takeChunk(w http.ResponseWriter, r *http.Request, take func(Chunk) error) {
	var c Chunk
	body := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	body.DisallowUnknownFields()
	if err := body.Decode(&c); err != nil {
		problem(w, http.StatusBadRequest, fault.New(fault.Usage, fmt.Errorf("the body is no chunk: %w", err), `send JSON like {"app": "127.0.0.1:40000", "bytes": 1000000}`))
		return
	}
	switch err := take(c); {
	case fault.Is(err, fault.NotFound):
		problem(w, http.StatusNotFound, err)
	case err != nil:
		problem(w, http.StatusBadRequest, err)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// flag reads a query value that is 1, 0 or absent.
func flag(r *http.Request, name string) (bool, error) {
	switch v := r.URL.Query().Get(name); v {
	case "", "0":
		return false, nil
	case "1":
		return true, nil
	default:
		return false, fault.New(fault.Usage, fmt.Errorf("%s=%.20q: must be 0 or 1", name, v), "")
	}
}

func problem(w http.ResponseWriter, status int, err error) {
	send(w, status, "application/problem+json", Problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status,
		Detail: err.Error(), Kind: string(fault.KindOf(err)), Hint: fault.HintOf(err),
	})
}

func send(w http.ResponseWriter, status int, contentType string, body any) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // an error means that nobody listens any more
}
