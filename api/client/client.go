// SPDX-License-Identifier: Apache-2.0

// Package client asks a running mpbond over its local API: for its state, for events, and for
// changes. It is for programs such as `mpbond status`, the lab, or yours; package api/serve is the
// other end.
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

// Client is a client of one mpbond. Safe for concurrent use.
type Client struct {
	path  string // of the socket, or the address
	host  string
	token string // over TCP
	http  *http.Client
}

// New returns a client of the socket at path. It connects at the first request.
func New(path string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return api.Dial(ctx, path)
	}
	return newClient(Client{path: path, host: "mpbond"}, dial)
}

// NewTCP returns a client of the API over TCP at addr, "host:port", with its token.
func NewTCP(addr, token string) *Client {
	return newClient(Client{path: addr, host: addr, token: token}, (&net.Dialer{Timeout: requestTimeout}).DialContext)
}

func newClient(c Client, dial func(context.Context, string, string) (net.Conn, error)) *Client {
	c.http = &http.Client{
		Transport: &http.Transport{
			DialContext:           dial,
			DisableCompression:    true,
			IdleConnTimeout:       time.Minute,
			ResponseHeaderTimeout: requestTimeout,
		},
	}
	return &c
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Status returns the status; if why is set, with the last decisions. If mpbond is not running, the
// fault is of kind NotRunning.
func (c *Client) Status(ctx context.Context, why bool) (s api.Status, err error) {
	path := "/v2/status"
	if why {
		path += "?why=1"
	}
	err = c.getJSON(ctx, path, &s)
	return s, err
}

// Devices lists this device and the trusted ones.
func (c *Client) Devices(ctx context.Context) (list []api.Device, err error) {
	err = c.getJSON(ctx, "/v2/devices", &list)
	return list, err
}

// Pipes lists the pipes in use and those that wait.
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

// Flows lists the open datagram flows of all bonds, the most recently used first for each bond.
func (c *Client) Flows(ctx context.Context) (list []api.BondFlow, err error) {
	err = c.getJSON(ctx, "/v2/flows", &list)
	return list, err
}

// Advice returns forecasts for transfers.
func (c *Client) Advice(ctx context.Context, r api.AdviceRequest) (a api.Advice, err error) {
	direction := "down"
	if r.Upload {
		direction = "up"
	}
	err = c.getJSON(ctx, "/v2/advice"+fmt.Sprintf("?bytes=%d&direction=%s&app=%s", r.Bytes, direction,
		url.QueryEscape(r.App)), &a)
	return a, err
}

// PastForecasts returns how right the primary's forecasts were.
func (c *Client) PastForecasts(ctx context.Context) (h api.PastForecasts, err error) {
	err = c.getJSON(ctx, "/v2/advice/history", &h)
	return h, err
}

// ForgetHistory removes what the primary remembers of destinations, and past forecasts.
func (c *Client) ForgetHistory(ctx context.Context) error {
	return c.requestChange(ctx, http.MethodDelete, "/v2/advice/history", nil)
}

// Usage returns what the device's links carried.
func (c *Client) Usage(ctx context.Context) (u api.Usage, err error) {
	err = c.getJSON(ctx, "/v2/usage", &u)
	return u, err
}

// CloseSubflow ends a subflow. Other subflows take over its bytes, and a new one is opened.
func (c *Client) CloseSubflow(ctx context.Context, bond string, number uint32) error {
	if bond == "" {
		bond = "-"
	}
	return c.requestChange(
		ctx,
		http.MethodDelete,
		"/v2/subflows/"+url.PathEscape(bond)+"/"+strconv.FormatUint(uint64(number), 10),
		nil,
	)
}

// MoveSubflow moves a helped subflow to the pipe at an address. Only a primary does that.
func (c *Client) MoveSubflow(ctx context.Context, bond string, number uint32, pipe string) error {
	return c.requestChange(
		ctx,
		http.MethodPatch,
		"/v2/subflows/"+url.PathEscape(bond)+"/"+strconv.FormatUint(uint64(number), 10),
		api.SubflowMove{Pipe: pipe},
	)
}

// ResetStream resets a stream: the app's connection ends.
func (c *Client) ResetStream(ctx context.Context, bond string, stream uint64) error {
	return c.requestChange(
		ctx,
		http.MethodDelete,
		"/v2/streams/"+url.PathEscape(bond)+"/"+strconv.FormatUint(stream, 10),
		nil,
	)
}

// ChangeStream changes mode, priority or weight of a stream at both ends. Only a primary does that.
func (c *Client) ChangeStream(ctx context.Context, bond string, stream uint64, to api.StreamChange) error {
	return c.requestChange(
		ctx,
		http.MethodPatch,
		"/v2/streams/"+url.PathEscape(bond)+"/"+strconv.FormatUint(stream, 10),
		to,
	)
}

// MarkChunk announces the bytes that an app waits for on a connection.
func (c *Client) MarkChunk(ctx context.Context, chunk api.Chunk) error {
	return c.requestChange(ctx, http.MethodPost, "/v2/chunk", chunk)
}

// RenameDevice renames a trusted device.
func (c *Client) RenameDevice(ctx context.Context, name, to string) error {
	return c.requestChange(ctx, http.MethodPatch, "/v2/devices/"+url.PathEscape(name), api.DeviceChange{Name: &to})
}

// PauseDevice pauses a trusted device, or resumes it.
func (c *Client) PauseDevice(ctx context.Context, name string, paused bool) error {
	return c.requestChange(
		ctx,
		http.MethodPatch,
		"/v2/devices/"+url.PathEscape(name),
		api.DeviceChange{Paused: &paused},
	)
}

// RevokeDevice revokes a device: it is no longer trusted, and its connections end.
func (c *Client) RevokeDevice(ctx context.Context, name string) error {
	return c.requestChange(ctx, http.MethodDelete, "/v2/devices/"+url.PathEscape(name), nil)
}

// Pair starts pairing a primary with devices by their codes. Pairing returns the result.
func (c *Client) Pair(ctx context.Context, r api.PairRequest) (p api.Pairing, err error) {
	err = c.requestJSON(ctx, http.MethodPost, "/v2/pair", r, &p)
	return p, err
}

// Pairing returns the state of the last Pair.
func (c *Client) Pairing(ctx context.Context) (p api.Pairing, err error) {
	err = c.getJSON(ctx, "/v2/pair", &p)
	return p, err
}

// SetFacts sets the facts of the device that is asked, for ten minutes.
func (c *Client) SetFacts(ctx context.Context, f api.Facts) error {
	return c.requestChange(ctx, http.MethodPut, "/v2/facts", f)
}

// Handoffs returns the handoffs of the device's mobile links within the last hour.
func (c *Client) Handoffs(ctx context.Context) (h api.Handoffs, err error) {
	err = c.getJSON(ctx, "/v2/handoffs", &h)
	return h, err
}

// Invite creates a new pairing code.
func (c *Client) Invite(ctx context.Context) (i api.Invitation, err error) {
	err = c.requestJSON(ctx, http.MethodPost, "/v2/invitation", nil, &i)
	return i, err
}

// Invitation returns the last pairing code and its state.
func (c *Client) Invitation(ctx context.Context) (i api.Invitation, err error) {
	err = c.getJSON(ctx, "/v2/invitation", &i)
	return i, err
}

// Policy returns the policy of a primary or helper.
func (c *Client) Policy(ctx context.Context) (p api.Policy, err error) {
	err = c.getJSON(ctx, "/v2/policy", &p)
	return p, err
}

// SetPolicy replaces the policy. An unusable text is a fault of kind Config, one made from an older
// version of kind Exists.
func (c *Client) SetPolicy(ctx context.Context, t api.PolicyText) (p api.Policy, err error) {
	err = c.requestJSON(ctx, http.MethodPut, "/v2/policy", t, &p)
	return p, err
}

// CheckPolicy checks whether a policy is usable and what would happen to a connection.
func (c *Client) CheckPolicy(ctx context.Context, what api.PolicyCheck) (a api.PolicyAnswer, err error) {
	err = c.requestJSON(ctx, http.MethodPost, "/v2/policy/check", what, &a)
	return a, err
}

// getJSON sends a GET request and decodes the answer.
func (c *Client) getJSON(ctx context.Context, path string, into any) error {
	return c.requestJSON(ctx, http.MethodGet, path, nil, into)
}

// requestJSON sends a request, with a body unless that is nil, and decodes the answer.
func (c *Client) requestJSON(ctx context.Context, method, path string, body, into any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answer, err := c.sendAPIRequest(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxAnswer)).Decode(into); err != nil {
		return fault.New(
			fault.Protocol,
			fmt.Errorf("answer of %s: %w", c.path, err),
			"is the running mpbond of the same version?",
		)
	}
	return nil
}

// requestChange sends a request without an answer body.
func (c *Client) requestChange(ctx context.Context, method, path string, body any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answer, err := c.sendAPIRequest(ctx, method, path, body)
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

// sendAPIRequest sends a request. An error answer becomes a fault.
func (c *Client) sendAPIRequest(ctx context.Context, method, path string, body any) (*http.Response, error) {
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
		return nil, c.explainAPIError(err)
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

// explainAPIError turns an error of a request into a fault.
func (c *Client) explainAPIError(err error) error {
	var op *net.OpError
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, os.ErrPermission):
		return fault.New(
			fault.Permission,
			fmt.Errorf("socket %s: not allowed", c.path),
			"run this as the user who started mpbond",
		)
	case errors.As(err, &op) && op.Op == "dial", errors.Is(err, os.ErrNotExist): // of the socket or its directory
		return fault.New(fault.NotRunning, fmt.Errorf("mpbond is not running: nobody answers at %s", c.path),
			"start it, for example with `mpbond primary`, or name its socket with --socket")
	}
	return fault.New(fault.Timeout, fmt.Errorf("mpbond at %s does not answer: %w", c.path, err), "")
}
