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
	path := "/v1/status"
	if why {
		path += "?why=1"
	}
	err = c.ask(ctx, http.MethodGet, path, &s)
	return s, err
}

// Invite makes a new code for pairing.
func (c *Client) Invite(ctx context.Context) (i Invitation, err error) {
	err = c.ask(ctx, http.MethodPost, "/v1/invitation", &i)
	return i, err
}

// Invitation is the last code and what has become of it.
func (c *Client) Invitation(ctx context.Context) (i Invitation, err error) {
	err = c.ask(ctx, http.MethodGet, "/v1/invitation", &i)
	return i, err
}

// ask decodes an answer; one that is an error becomes a fault.
func (c *Client) ask(ctx context.Context, method, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://mpbond"+path, nil)
	if err != nil {
		return err
	}
	answer, err := c.http.Do(req)
	if err != nil {
		return c.explain(err)
	}
	defer answer.Body.Close()
	body := json.NewDecoder(io.LimitReader(answer.Body, maxAnswer))
	if answer.StatusCode != http.StatusOK {
		var p Problem
		if err := body.Decode(&p); err != nil || p.Kind == "" {
			return fault.New(fault.Protocol, fmt.Errorf("%s answered %s", c.path, answer.Status), "")
		}
		return fault.New(fault.Kind(p.Kind), errors.New(p.Detail), p.Hint)
	}
	if err := body.Decode(into); err != nil {
		return fault.New(fault.Protocol, fmt.Errorf("answer of %s: %w", c.path, err), "is the running mpbond of the same version?")
	}
	return nil
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
