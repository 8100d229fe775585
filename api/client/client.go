// Package client asks a running mpbond over its local API: what it does, what
// has changed, and to change something. It stands between package api/serve at
// the other end of the socket and a program: `mpbond status` and its like, the
// lab, or one of yours.
//
//	c := client.New(api.SocketPath("primary"))
//	defer c.Close()
//	for e, err := range c.Events(ctx, client.Now) {
//		…
//	}
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"mpbond/api"
	"mpbond/base/fault"
)

const (
	requestTimeout = 5 * time.Second
	maxAnswer      = 16 << 20
)

// Client asks one mpbond. It is safe for concurrent use.
type Client struct {
	path  string // of the socket, or the address
	host  string
	token string // over TCP
	http  *http.Client
}

// New makes a Client of the socket at path. It connects when asked.
func New(path string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return api.Dial(ctx, path)
	}
	return newClient(Client{path: path, host: "mpbond"}, dial)
}

// NewTCP makes a Client of an mpbond that answers the API at addr, "host:port",
// to those who know the token.
func NewTCP(addr, token string) *Client {
	return newClient(Client{path: addr, host: addr, token: token}, (&net.Dialer{Timeout: requestTimeout}).DialContext)
}

func newClient(c Client, dial func(context.Context, string, string) (net.Conn, error)) *Client {
	c.http = &http.Client{Transport: &http.Transport{DialContext: dial, DisableCompression: true, IdleConnTimeout: time.Minute, ResponseHeaderTimeout: requestTimeout}}
	return &c
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Status asks for the status; with why, also for the last decisions. If nobody
// answers, the fault is of kind NotRunning.
func (c *Client) Status(ctx context.Context, why bool) (s api.Status, err error) {
	path := "/v2/status"
	if why {
		path += "?why=1"
	}
	err = c.getJSON(ctx, path, &s)
	return s, err
}

// Devices lists this device and those that it trusts.
func (c *Client) Devices(ctx context.Context) (list []api.Device, err error) {
	err = c.getJSON(ctx, "/v2/devices", &list)
	return list, err
}

// Pipes lists the pipes that carry a subflow, or wait.
func (c *Client) Pipes(ctx context.Context) (list []api.Pipe, err error) {
	err = c.getJSON(ctx, "/v2/pipes", &list)
	return list, err
}

// Subflows lists the subflows of all bonds.
func (c *Client) Subflows(ctx context.Context) (list []api.BondSubflow, err error) {
	err = c.getJSON(ctx, "/v2/subflows", &list)
	return list, err
}

// Streams lists the open streams of all bonds.
func (c *Client) Streams(ctx context.Context) (list []api.BondStream, err error) {
	err = c.getJSON(ctx, "/v2/streams", &list)
	return list, err
}

// Flows lists the open datagram flows of all bonds, of each the one used last first.
func (c *Client) Flows(ctx context.Context) (list []api.BondFlow, err error) {
	err = c.getJSON(ctx, "/v2/flows", &list)
	return list, err
}

// Usage tells what the device's links carried.
func (c *Client) Usage(ctx context.Context) (u api.Usage, err error) {
	err = c.getJSON(ctx, "/v2/usage", &u)
	return u, err
}

// CloseSubflow ends a subflow: what it carried goes over others, and a new one
// is made.
func (c *Client) CloseSubflow(ctx context.Context, bond string, path uint32) error {
	if bond == "" {
		bond = "-"
	}
	return c.requestChange(ctx, http.MethodDelete, "/v2/subflows/"+url.PathEscape(bond)+"/"+strconv.FormatUint(uint64(path), 10), nil)
}

// MoveSubflow has a helped subflow go on over the pipe to an address, at a
// primary.
func (c *Client) MoveSubflow(ctx context.Context, bond string, path uint32, pipe string) error {
	return c.requestChange(ctx, http.MethodPatch, "/v2/subflows/"+url.PathEscape(bond)+"/"+strconv.FormatUint(uint64(path), 10), api.SubflowMove{Pipe: pipe})
}

// ResetStream resets a stream: the app's connection ends.
func (c *Client) ResetStream(ctx context.Context, bond string, stream uint64) error {
	return c.requestChange(ctx, http.MethodDelete, "/v2/streams/"+url.PathEscape(bond)+"/"+strconv.FormatUint(stream, 10), nil)
}

// ChangeStream has both ends treat a stream otherwise, at a primary.
func (c *Client) ChangeStream(ctx context.Context, bond string, stream uint64, to api.StreamChange) error {
	return c.requestChange(ctx, http.MethodPatch, "/v2/streams/"+url.PathEscape(bond)+"/"+strconv.FormatUint(stream, 10), to)
}

// MarkChunk tells what an app waits for on one of its connections.
func (c *Client) MarkChunk(ctx context.Context, chunk api.Chunk) error {
	return c.requestChange(ctx, http.MethodPost, "/v2/chunk", chunk)
}

// RenameDevice gives a device that is trusted another name.
func (c *Client) RenameDevice(ctx context.Context, name, to string) error {
	return c.requestChange(ctx, http.MethodPatch, "/v2/devices/"+url.PathEscape(name), api.DeviceChange{Name: &to})
}

// PauseDevice has a device that is trusted not used, or used again.
func (c *Client) PauseDevice(ctx context.Context, name string, paused bool) error {
	return c.requestChange(ctx, http.MethodPatch, "/v2/devices/"+url.PathEscape(name), api.DeviceChange{Paused: &paused})
}

// RevokeDevice has a device trusted no longer: what is open with it ends.
func (c *Client) RevokeDevice(ctx context.Context, name string) error {
	return c.requestChange(ctx, http.MethodDelete, "/v2/devices/"+url.PathEscape(name), nil)
}

// Pair begins to pair a primary with devices that show codes. Pairing tells what
// becomes of it.
func (c *Client) Pair(ctx context.Context, r api.PairRequest) (p api.Pairing, err error) {
	err = c.requestJSON(ctx, http.MethodPost, "/v2/pair", r, &p)
	return p, err
}

// Pairing is what has become of the last Pair.
func (c *Client) Pairing(ctx context.Context) (p api.Pairing, err error) {
	err = c.getJSON(ctx, "/v2/pair", &p)
	return p, err
}

// SetFacts tells what is known of the device that is asked: it holds for ten
// minutes.
func (c *Client) SetFacts(ctx context.Context, f api.Facts) error {
	return c.requestChange(ctx, http.MethodPut, "/v2/facts", f)
}

// Invite makes a new code for pairing.
func (c *Client) Invite(ctx context.Context) (i api.Invitation, err error) {
	err = c.requestJSON(ctx, http.MethodPost, "/v2/invitation", nil, &i)
	return i, err
}

// Invitation is the last code and what has become of it.
func (c *Client) Invitation(ctx context.Context) (i api.Invitation, err error) {
	err = c.getJSON(ctx, "/v2/invitation", &i)
	return i, err
}

// Policy is the policy of a primary or helper.
func (c *Client) Policy(ctx context.Context) (p api.Policy, err error) {
	err = c.getJSON(ctx, "/v2/policy", &p)
	return p, err
}

// SetPolicy replaces the policy. One that cannot be used is a fault of kind
// Config, one that was made from an older text than there is of kind Exists.
func (c *Client) SetPolicy(ctx context.Context, t api.PolicyText) (p api.Policy, err error) {
	err = c.requestJSON(ctx, http.MethodPut, "/v2/policy", t, &p)
	return p, err
}

// CheckPolicy asks whether a policy can be used, and what would happen to a
// connection.
func (c *Client) CheckPolicy(ctx context.Context, what api.PolicyCheck) (a api.PolicyAnswer, err error) {
	err = c.requestJSON(ctx, http.MethodPost, "/v2/policy/check", what, &a)
	return a, err
}

// getJSON asks for something, within the usual time.
func (c *Client) getJSON(ctx context.Context, path string, into any) error {
	return c.requestJSON(ctx, http.MethodGet, path, nil, into)
}

// requestJSON is get with another method, and a body unless that is nil.
func (c *Client) requestJSON(ctx context.Context, method, path string, body, into any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answer, err := c.doRequest(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxAnswer)).Decode(into); err != nil {
		return fault.New(fault.Protocol, fmt.Errorf("answer of %s: %w", c.path, err), "is the running mpbond of the same version?")
	}
	return nil
}

// requestChange asks for a change, within the usual time.
func (c *Client) requestChange(ctx context.Context, method, path string, body any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answer, err := c.doRequest(ctx, method, path, body)
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

// doRequest makes a request; an answer that is an error becomes a fault.
func (c *Client) doRequest(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var content io.Reader
	if body != nil {
		j, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(j)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+c.host+path, content)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	answer, err := c.http.Do(req)
	if err != nil {
		return nil, c.explainError(err)
	}
	if answer.StatusCode < 300 {
		return answer, nil
	}
	defer answer.Body.Close()
	var p api.Problem
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxAnswer)).Decode(&p); err != nil || p.Kind == "" {
		return nil, fault.New(fault.Protocol, fmt.Errorf("%s answered %s", c.path, answer.Status), "")
	}
	return nil, fault.New(fault.Kind(p.Kind), errors.New(p.Detail), p.Hint)
}

// explainError makes a fault of an error of a request.
func (c *Client) explainError(err error) error {
	var op *net.OpError
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, os.ErrPermission):
		return fault.New(fault.Permission, fmt.Errorf("socket %s: not allowed", c.path), "run this as the user who started mpbond")
	case errors.As(err, &op) && op.Op == "dial", errors.Is(err, os.ErrNotExist): // of the socket, or of its directory
		return fault.New(fault.NotRunning, fmt.Errorf("mpbond is not running: nobody answers at %s", c.path),
			"start it, for example with `mpbond primary`, or tell where it is with --socket")
	}
	return fault.New(fault.Timeout, fmt.Errorf("mpbond at %s does not answer: %w", c.path, err), "")
}
