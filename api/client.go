package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"mpbond/fault"
)

const (
	clientTimeout = 5 * time.Second
	maxAnswer     = 16 << 20
)

// Client asks the mpbond behind one socket. It is safe for concurrent use.
type Client struct {
	path string
	http *http.Client
}

// NewClient makes a Client of the socket at path. It connects when asked.
func NewClient(path string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
	return &Client{path, &http.Client{
		Timeout:   clientTimeout,
		Transport: &http.Transport{DialContext: dial, DisableCompression: true, IdleConnTimeout: time.Minute},
	}}
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Status asks for the status; with why, also for the last decisions. If nobody
// answers, the fault is of kind NotRunning.
func (c *Client) Status(ctx context.Context, why bool) (s Status, err error) {
	url := "http://mpbond/v1/status"
	if why {
		url += "?why=1"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return s, err
	}
	answer, err := c.http.Do(req)
	if err != nil {
		return s, c.explain(err)
	}
	defer answer.Body.Close()
	body := json.NewDecoder(io.LimitReader(answer.Body, maxAnswer))
	if answer.StatusCode != http.StatusOK {
		var p Problem
		if err := body.Decode(&p); err != nil || p.Kind == "" {
			return s, fault.New(fault.Protocol, fmt.Errorf("%s answered %s", c.path, answer.Status), "")
		}
		return s, fault.New(fault.Kind(p.Kind), errors.New(p.Detail), p.Hint)
	}
	if err := body.Decode(&s); err != nil {
		return s, fault.New(fault.Protocol, fmt.Errorf("answer of %s: %w", c.path, err), "is the running mpbond of the same version?")
	}
	return s, nil
}

// explain makes a fault of an error of a request.
func (c *Client) explain(err error) error {
	var op *net.OpError
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, os.ErrPermission):
		return fault.New(fault.Permission, fmt.Errorf("socket %s: not allowed", c.path), "run this as the user who started mpbond")
	case errors.As(err, &op) && op.Op == "dial":
		return fault.New(fault.NotRunning, fmt.Errorf("mpbond is not running: nobody answers at %s", c.path),
			"start it, for example with `mpbond primary`, or tell where it is with --socket")
	}
	return fault.New(fault.Timeout, fmt.Errorf("mpbond at %s does not answer: %w", c.path, err), "")
}
