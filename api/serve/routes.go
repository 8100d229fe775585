// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"mpbond/api"
	"mpbond/base/fault"
	"mpbond/base/unit"
)

// Handler returns the API as an HTTP handler.
func Handler(role Role) http.Handler {
	mux := http.NewServeMux()
	cfg := huma.DefaultConfig("mpbond", "2")
	cfg.Info.Description = "The local API of a running mpbond. Sizes are in bytes, rates in bits per second, " +
		"delays in milliseconds, and each name ends in its unit. " +
		"Within /v2 fields are added, never renamed, removed or given another unit."
	cfg.OpenAPIPath, cfg.DocsPath, cfg.SchemasPath, cfg.CreateHooks = "", "", "", nil
	for _, t := range []reflect.Type{reflect.TypeFor[unit.Bytes](), reflect.TypeFor[unit.Rate]()} {
		cfg.Components.Schemas.RegisterTypeAlias(t, reflect.TypeFor[int64]())
	}
	a := humago.New(mux, cfg)
	role.registerCore(a)
	role.registerDevices(a)
	role.registerInvitation(a)
	role.registerPair(a)
	role.registerPolicy(a)
	role.registerQR(a)
	role.registerPlots(a)
	role.registerUsage(a)
	role.registerAdvice(a)
	role.registerEvents(a)
	mux.Handle("GET /metrics", metricsHandler(role))
	describeSchemas(a.OpenAPI().Components.Schemas.Map())
	spec, err := json.Marshal(a.OpenAPI())
	if err != nil {
		panic(err) // of the types, which tests cover
	}
	mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/openapi+json")
		_, _ = w.Write(spec)
	})
	mux.HandleFunc("/v1", serveGone)
	mux.HandleFunc("/v1/", serveGone)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { serveNotFound(mux, w, r) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/") { // CONNECT and OPTIONS *, which the mux would answer without a problem
			serveNotFound(mux, w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// serveGone answers requests to version 1 of the API with 410 and names version 2.
func serveGone(w http.ResponseWriter, r *http.Request) {
	newHTTPProblem(http.StatusGone, fault.New(
		fault.Unsupported,
		fmt.Errorf("version 1 of the API is gone: %.100q", r.URL.Path),
		"use /v2 and its field names: GET /openapi.json describes them",
	)).writeHTTPAnswer(w)
}

// serveNotFound answers requests that no route matches.
func serveNotFound(mux *http.ServeMux, w http.ResponseWriter, r *http.Request) {
	var allow []string
	for _, m := range []string{
		http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPost, http.MethodPatch, http.MethodDelete,
	} {
		other := &http.Request{Method: m, URL: r.URL, Host: r.Host}
		if _, pattern := mux.Handler(other); pattern != "/" && pattern != "" {
			allow = append(allow, m)
		}
	}
	if len(allow) > 0 {
		w.Header().Set("Allow", strings.Join(allow, ", "))
		newHTTPProblem(
			http.StatusMethodNotAllowed,
			fault.New(
				fault.Usage,
				fmt.Errorf("method %.20s is not allowed", r.Method),
				"use "+strings.Join(allow, " or "),
			),
		).writeHTTPAnswer(w)
		return
	}
	problemForError(
		fault.New(
			fault.NotFound,
			fmt.Errorf("there is no %.100q", r.URL.Path),
			"see GET /openapi.json",
		),
	).writeHTTPAnswer(w)
}

// jsonAnswer is an answer with a JSON body.
type jsonAnswer[T any] struct {
	CacheControl string `header:"Cache-Control"`
	Body         T
}

// registerGet registers a GET operation.
func registerGet[I, T any](a huma.API, path, summary string, f func(*I) (T, error)) {
	registerJSON(a, newOperation(http.MethodGet, path, summary), f)
}

// registerJSON registers an operation whose answer is the result of f as JSON, not to be cached.
func registerJSON[I, T any](a huma.API, op huma.Operation, f func(*I) (T, error)) {
	registerTyped(a, op, func(_ context.Context, in *I) (*jsonAnswer[T], error) {
		body, err := f(in)
		if err != nil {
			return nil, problemForError(err)
		}
		return &jsonAnswer[T]{"no-store", body}, nil
	})
}

// registerChange registers an operation that changes something and is answered with 204.
func registerChange[I any](a huma.API, method, path, summary string, f func(*I) error) {
	registerTyped(a, newOperation(method, path, summary), func(_ context.Context, in *I) (*struct{}, error) {
		if err := f(in); err != nil {
			return nil, problemForError(err)
		}
		return nil, nil
	})
}

// newOperation returns an operation with our limits. Its ID follows from the method and the path.
func newOperation(method, path, summary string) huma.Operation {
	id := strings.ToLower(method) + strings.NewReplacer("/v2", "", "/", "-", "{", "", "}", "").Replace(path)
	return huma.Operation{
		OperationID:                  id,
		Method:                       method,
		Path:                         path,
		Summary:                      summary,
		MaxBodyBytes:                 maxBody,
		BodyReadTimeout:              readTimeout,
		RejectUnknownQueryParameters: true,
	}
}

type noInput struct{}

type whyInput struct {
	Why string `query:"why" enum:"0,1" doc:"1: with the last decisions, streams and flows"`
}

type deviceNameInput struct {
	Name string `path:"name" maxLength:"64" doc:"the device's name"`
}

type pipeInput struct {
	Name    string `path:"name" maxLength:"64" doc:"the device's name"`
	Address string `path:"address" maxLength:"128" doc:"the pipe's address"`
}

type subflowInput struct {
	Bond    string `path:"bond" maxLength:"40" doc:"the bond's ID; - for none, at a helper"`
	Subflow uint64 `path:"subflow" maximum:"4294967295" doc:"the subflow's number"`
}

type subflowMoveInput struct {
	Bond    string `path:"bond" maxLength:"40" doc:"the bond's ID"`
	Subflow uint64 `path:"subflow" maximum:"4294967295" doc:"the subflow's number"`
	Body    api.SubflowMove
}

type streamInput struct {
	Bond   string `path:"bond" maxLength:"40" doc:"the bond's ID"`
	Stream uint64 `path:"stream" doc:"the stream's number"`
}

type flowInput struct {
	Bond string `path:"bond" maxLength:"40" doc:"the bond's ID"`
	Flow uint64 `path:"flow" doc:"the flow's number"`
}

type streamChangeInput struct {
	Bond   string `path:"bond" maxLength:"40" doc:"the bond's ID"`
	Stream uint64 `path:"stream" doc:"the stream's number"`
	Body   api.StreamChange
}

type chunkInput struct{ Body api.Chunk }

type deviceInput struct {
	Name string `path:"name" maxLength:"64" doc:"the device's name"`
	Body api.DeviceChange
}

type pairInput struct{ Body api.PairRequest }

type factsInput struct{ Body api.Facts }

// registerCore registers status, pipes, subflows, streams, flows, chunks and facts.
func (r Role) registerCore(a huma.API) {
	registerGet(
		a,
		"/v2/status",
		"the current state of this mpbond",
		func(in *whyInput) (api.Status, error) { return r.currentStatus(in.Why == "1"), nil },
	)

	registerGet(
		a,
		"/v2/pipes",
		"pipes in use and pipes that wait",
		func(*noInput) ([]api.Pipe, error) { return r.currentStatus(false).Pipes, nil },
	)
	registerGet(a, "/v2/pipes/{name}/{address}", "one pipe", func(in *pipeInput) (api.Pipe, error) {
		return findOrNotFound(
			r.currentStatus(false).Pipes,
			"pipe to "+in.Name+" at "+in.Address,
			func(p api.Pipe) bool { return p.Device == in.Name && p.Address == in.Address },
		)
	})

	registerGet(
		a,
		"/v2/subflows",
		"subflows of all bonds, or the relayed ones of a helper",
		func(*noInput) ([]api.BondSubflow, error) { return r.listRoleSubflows(), nil },
	)
	registerGet(a, "/v2/subflows/{bond}/{subflow}", "one subflow", func(in *subflowInput) (api.BondSubflow, error) {
		return findOrNotFound(
			r.listRoleSubflows(),
			fmt.Sprintf("subflow %d of bond %s", in.Subflow, in.Bond),
			func(s api.BondSubflow) bool { return s.Bond == bondIDFromURL(in.Bond) && uint64(s.ID) == in.Subflow },
		)
	})
	registerChange(
		a,
		http.MethodPatch,
		"/v2/subflows/{bond}/{subflow}",
		"move a helped subflow to another pipe",
		func(in *subflowMoveInput) error {
			if r.MoveSubflow == nil {
				return unsupportedError("moving a subflow")
			}
			return r.MoveSubflow(bondIDFromURL(in.Bond), uint32(in.Subflow), in.Body.Pipe)
		},
	)
	registerChange(
		a,
		http.MethodDelete,
		"/v2/subflows/{bond}/{subflow}",
		"end a subflow: others take over its bytes, and a new one is opened",
		func(in *subflowInput) error {
			if r.CloseSubflow == nil {
				return unsupportedError("ending a subflow")
			}
			return r.CloseSubflow(bondIDFromURL(in.Bond), uint32(in.Subflow))
		},
	)

	registerGet(
		a,
		"/v2/streams",
		"open streams of all bonds, newest first for each bond",
		func(*noInput) ([]api.BondStream, error) { return r.listRoleStreams(), nil },
	)
	registerGet(a, "/v2/streams/{bond}/{stream}", "one stream", func(in *streamInput) (api.BondStream, error) {
		return findOrNotFound(
			r.listRoleStreams(),
			fmt.Sprintf("stream %d of bond %s", in.Stream, in.Bond),
			func(s api.BondStream) bool { return s.Bond == in.Bond && s.ID == in.Stream },
		)
	})
	registerGet(
		a,
		"/v2/flows",
		"open datagram flows of all bonds, most recently used first for each bond",
		func(*noInput) ([]api.BondFlow, error) { return r.listRoleFlows(), nil },
	)
	registerGet(a, "/v2/flows/{bond}/{flow}", "one datagram flow", func(in *flowInput) (api.BondFlow, error) {
		return findOrNotFound(
			r.listRoleFlows(),
			fmt.Sprintf("flow %d of bond %s", in.Flow, in.Bond),
			func(f api.BondFlow) bool { return f.Bond == in.Bond && f.ID == in.Flow },
		)
	})
	registerChange(
		a,
		http.MethodPatch,
		"/v2/streams/{bond}/{stream}",
		"change the mode, priority or weight of a stream",
		func(in *streamChangeInput) error {
			switch {
			case r.ChangeStream == nil:
				return unsupportedError("changing a stream")
			case in.Body == (api.StreamChange{}):
				return fault.New(fault.Usage, errors.New("nothing is to be changed"), "send mode, priority or weight")
			}
			return r.ChangeStream(in.Bond, in.Stream, in.Body)
		},
	)
	registerChange(
		a,
		http.MethodDelete,
		"/v2/streams/{bond}/{stream}",
		"reset a stream: the app's connection ends",
		func(in *streamInput) error {
			if r.ResetStream == nil {
				return unsupportedError("resetting a stream")
			}
			return r.ResetStream(in.Bond, in.Stream)
		},
	)
	registerChange(
		a,
		http.MethodPost,
		"/v2/chunk",
		"announce the bytes that an app waits for on a connection",
		func(in *chunkInput) error {
			if r.MarkChunk == nil {
				return unsupportedError("a chunk mark")
			}
			return r.MarkChunk(in.Body)
		},
	)
	registerChange(
		a,
		http.MethodPut,
		"/v2/facts",
		"set the battery, temperature and link facts of this device",
		func(in *factsInput) error {
			if r.SetFacts == nil {
				return unsupportedError("facts of the device")
			}
			return r.SetFacts(in.Body)
		},
	)
	registerGet(
		a,
		"/v2/handoffs",
		"handoffs of mobile links within the last hour",
		func(*noInput) (h api.Handoffs, err error) {
			if r.Handoffs == nil {
				return h, unsupportedError("handoffs")
			}
			return r.Handoffs(), nil
		},
	)
}

// registerDevices registers the trusted devices.
func (r Role) registerDevices(a huma.API) {
	registerGet(
		a,
		"/v2/devices",
		"this device and the trusted ones",
		func(*noInput) ([]api.Device, error) { return r.currentStatus(false).Devices, nil },
	)
	registerGet(a, "/v2/devices/{name}", "one device", func(in *deviceNameInput) (api.Device, error) {
		return findOrNotFound(
			r.currentStatus(false).Devices,
			"device "+in.Name,
			func(d api.Device) bool { return d.Name == in.Name },
		)
	})
	registerChange(
		a,
		http.MethodPatch,
		"/v2/devices/{name}",
		"rename, pause or resume a device",
		func(in *deviceInput) error {
			name, paused := in.Body.Name, in.Body.Paused
			switch {
			case r.Devices == nil:
				return unsupportedError("changing a device")
			case (name == nil) == (paused == nil):
				return fault.New(
					fault.Usage,
					errors.New("exactly one change is required"),
					"send either name or paused",
				)
			case name != nil:
				return r.Devices.Rename(in.Name, *name)
			}
			return r.Devices.Pause(in.Name, *paused)
		},
	)
	registerChange(
		a,
		http.MethodDelete,
		"/v2/devices/{name}",
		"revoke a device: it is no longer trusted, and its connections end",
		func(in *deviceNameInput) error {
			if r.Devices == nil {
				return unsupportedError("revoking a device")
			}
			return r.Devices.Revoke(in.Name)
		},
	)
}

// registerPair registers pairing by the codes of other devices.
func (r Role) registerPair(a huma.API) {
	elsewhere := fault.New(
		fault.Unsupported,
		errors.New("pairing by the code of another device is not supported here"),
		"enter codes at a primary; server and helper create them with `mpbond accept`",
	)
	registerGet(a, "/v2/pair", "the state of the last pairing", func(*noInput) (p api.Pairing, err error) {
		if r.Pairings == nil {
			return p, elsewhere
		}
		return r.Pairings.Current(), nil
	})
	op := newOperation(
		http.MethodPost,
		"/v2/pair",
		"pair with the devices that show these codes; GET returns the state",
	)
	op.DefaultStatus = http.StatusAccepted
	registerTyped(a, op, func(_ context.Context, in *pairInput) (*jsonAnswer[api.Pairing], error) {
		if r.Pairings == nil {
			return nil, problemForError(elsewhere)
		}
		p, err := r.Pairings.Pair(in.Body)
		if err != nil {
			return nil, problemForError(err)
		}
		return &jsonAnswer[api.Pairing]{"no-store", p}, nil
	})
}

// registerInvitation registers the code of this device.
func (r Role) registerInvitation(a huma.API) {
	registerGet(
		a,
		"/v2/invitation",
		"the last pairing code and its state",
		func(*noInput) (i api.Invitation, err error) {
			if r.Invitations == nil {
				return i, unsupportedError("codes for pairing")
			}
			return r.Invitations.Current(), nil
		},
	)
	registerTyped(
		a,
		newOperation(http.MethodPost, "/v2/invitation", "create a new pairing code"),
		func(context.Context, *noInput) (*jsonAnswer[api.Invitation], error) {
			if r.Invitations == nil {
				return nil, problemForError(unsupportedError("codes for pairing"))
			}
			i, err := r.Invitations.Invite()
			if err != nil {
				return nil, problemForError(err)
			}
			return &jsonAnswer[api.Invitation]{"no-store", i}, nil
		},
	)
}

// registerPolicy registers the policy file and its check.
func (r Role) registerPolicy(a huma.API) {
	manager := func() (*api.PolicyManager, error) {
		if r.Policy == nil {
			return nil, unsupportedError("a policy")
		}
		return r.Policy, nil
	}
	registerGet(a, "/v2/policy", "the policy file and the rules in force", func(*noInput) (p api.Policy, err error) {
		k, err := manager()
		if err != nil {
			return p, err
		}
		return k.Get(), nil
	})
	registerText(
		a,
		http.MethodPut,
		"/v2/policy",
		"write the policy file and put it in force",
		func(in api.PolicyText) (p api.Policy, err error) {
			k, err := manager()
			if err != nil {
				return p, err
			}
			return k.Put(in)
		},
	)
	registerText(
		a,
		http.MethodPost,
		"/v2/policy/check",
		"check whether a policy is usable and what would happen to a connection",
		func(in api.PolicyCheck) (p api.PolicyAnswer, err error) {
			k, err := manager()
			if err != nil {
				return p, err
			}
			return k.Check(in)
		},
	)
}

// registerText registers an operation with a long text.
func registerText[I, T any](a huma.API, method, path, summary string, f func(I) (T, error)) {
	o := newOperation(method, path, summary)
	o.MaxBodyBytes = maxText
	registerTyped(a, o, func(_ context.Context, in *struct{ Body I }) (*jsonAnswer[T], error) {
		body, err := f(in.Body)
		if err != nil {
			return nil, problemOfText(err)
		}
		return &jsonAnswer[T]{"no-store", body}, nil
	})
}

// bondIDFromURL returns the bond ID of a URL, where "-" stands for the empty one.
func bondIDFromURL(s string) string {
	if s == "-" {
		return ""
	}
	return s
}

// findOrNotFound returns the element of a list for which is returns true.
func findOrNotFound[T any](list []T, what string, is func(T) bool) (one T, err error) {
	if i := slices.IndexFunc(list, is); i >= 0 {
		return list[i], nil
	}
	return one, fault.New(fault.NotFound, fmt.Errorf("there is no %.200s", what), "see the list")
}

// currentStatus returns the role's status with lists that are never null.
func (r Role) currentStatus(why bool) api.Status {
	s := r.Status(why)
	s.Devices, s.Pipes, s.Bonds = emptyListIfNil(s.Devices), emptyListIfNil(s.Pipes), emptyListIfNil(s.Bonds)
	for i := range s.Bonds {
		s.Bonds[i].Subflows = emptyListIfNil(s.Bonds[i].Subflows)
	}
	return s
}

func (r Role) listRoleSubflows() []api.BondSubflow {
	all := []api.BondSubflow{}
	for _, b := range r.Status(false).Bonds {
		for _, p := range b.Subflows {
			if p.ID != 0 { // 0: the entry only says why there is no subflow
				all = append(all, api.BondSubflow{Bond: b.ID, Peer: b.Peer, Subflow: p})
			}
		}
	}
	if r.Subflows != nil {
		all = append(all, r.Subflows()...)
	}
	return all
}

func (r Role) listRoleStreams() []api.BondStream {
	if r.Streams == nil {
		return []api.BondStream{}
	}
	return emptyListIfNil(r.Streams())
}

func (r Role) listRoleFlows() []api.BondFlow {
	if r.Flows == nil {
		return []api.BondFlow{}
	}
	return emptyListIfNil(r.Flows())
}

// emptyListIfNil returns l, or an empty list for nil.
func emptyListIfNil[T any](l []T) []T {
	if l == nil {
		return []T{}
	}
	return l
}
