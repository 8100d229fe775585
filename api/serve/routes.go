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

// Handler is the API as an HTTP handler.
func Handler(role Role) http.Handler {
	mux := http.NewServeMux()
	cfg := huma.DefaultConfig("mpbond", "1")
	cfg.Info.Description = "The local API of a running mpbond. Sizes are in bytes, rates in bits per second, delays in milliseconds, " +
		"and each name ends in its unit. Within /v1 fields are added, never renamed, removed or given another unit."
	cfg.OpenAPIPath, cfg.DocsPath, cfg.SchemasPath, cfg.CreateHooks = "", "", "", nil
	for _, t := range []reflect.Type{reflect.TypeFor[unit.Bytes](), reflect.TypeFor[unit.Rate]()} {
		cfg.Components.Schemas.RegisterTypeAlias(t, reflect.TypeFor[int64]())
	}
	a := humago.New(mux, cfg)
	role.register(a)
	role.registerDevices(a)
	role.registerInvitation(a)
	role.registerPair(a)
	role.registerPolicy(a)
	role.registerQR(a)
	role.registerPlots(a)
	role.registerUsage(a)
	role.registerEvents(a)
	mux.Handle("GET /metrics", metrics(role))
	addComments(a.OpenAPI().Components.Schemas.Map())
	spec, err := json.Marshal(a.OpenAPI())
	if err != nil {
		panic(err) // of the types, which tests have seen
	}
	mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/openapi+json")
		_, _ = w.Write(spec)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { nowhere(mux, w, r) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/") { // CONNECT and OPTIONS *, which the mux would answer in its own words
			nowhere(mux, w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// nowhere answers what no route matches.
func nowhere(mux *http.ServeMux, w http.ResponseWriter, r *http.Request) {
	var allow []string
	for _, m := range []string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPost, http.MethodPatch, http.MethodDelete} {
		other := &http.Request{Method: m, URL: r.URL, Host: r.Host}
		if _, pattern := mux.Handler(other); pattern != "/" && pattern != "" {
			allow = append(allow, m)
		}
	}
	if len(allow) > 0 {
		w.Header().Set("Allow", strings.Join(allow, ", "))
		newProblem(http.StatusMethodNotAllowed, fault.New(fault.Usage, fmt.Errorf("%.20s cannot be answered here", r.Method), "use "+strings.Join(allow, " or "))).send(w)
		return
	}
	problemOf(fault.New(fault.NotFound, fmt.Errorf("there is no %.100q", r.URL.Path), "GET /openapi.json lists what there is")).send(w)
}

// answer is the body of an answer.
type answer[T any] struct {
	CacheControl string `header:"Cache-Control"`
	Body         T
}

// get registers a GET of something.
func get[I, T any](a huma.API, path, summary string, f func(*I) (T, error)) {
	register(a, operation(http.MethodGet, path, summary), f)
}

func register[I, T any](a huma.API, op huma.Operation, f func(*I) (T, error)) {
	handle(a, op, func(_ context.Context, in *I) (*answer[T], error) {
		body, err := f(in)
		if err != nil {
			return nil, problemOf(err)
		}
		return &answer[T]{"no-store", body}, nil
	})
}

// do registers what changes something, answered with 204.
func do[I any](a huma.API, method, path, summary string, f func(*I) error) {
	handle(a, operation(method, path, summary), func(_ context.Context, in *I) (*struct{}, error) {
		if err := f(in); err != nil {
			return nil, problemOf(err)
		}
		return nil, nil
	})
}

func operation(method, path, summary string) huma.Operation {
	id := strings.ToLower(method) + strings.NewReplacer("/v1", "", "/", "-", "{", "", "}", "").Replace(path)
	return huma.Operation{OperationID: id, Method: method, Path: path, Summary: summary, MaxBodyBytes: maxBody, BodyReadTimeout: readTimeout,
		RejectUnknownQueryParameters: true}
}

type nothing struct{}

type whyInput struct {
	Why string `query:"why" enum:"0,1" doc:"1: with the last decisions, streams and flows"`
}

type nameInput struct {
	Name string `path:"name" maxLength:"64" doc:"the device's name"`
}

type pipeInput struct {
	Name    string `path:"name" maxLength:"64" doc:"the device's name"`
	Address string `path:"address" maxLength:"128" doc:"the pipe's address"`
}

type subflowInput struct {
	Bond string `path:"bond" maxLength:"40" doc:"the bond's ID; - for none, at a helper"`
	Path uint64 `path:"path" maximum:"4294967295" doc:"the subflow's number"`
}

type moveInput struct {
	Bond string `path:"bond" maxLength:"40" doc:"the bond's ID"`
	Path uint64 `path:"path" maximum:"4294967295" doc:"the subflow's number"`
	Body api.Move
}

type streamInput struct {
	Bond   string `path:"bond" maxLength:"40" doc:"the bond's ID"`
	Stream uint64 `path:"stream" doc:"the stream's number"`
}

type flowInput struct {
	Bond string `path:"bond" maxLength:"40" doc:"the bond's ID"`
	Flow uint64 `path:"flow" doc:"the flow's number"`
}

type changeInput struct {
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

func (r Role) register(a huma.API) {
	get(a, "/v1/status", "one running mpbond at this moment", func(in *whyInput) (api.Status, error) { return r.status(in.Why == "1"), nil })

	get(a, "/v1/pipes", "pipes that carry a subflow, or wait", func(*nothing) ([]api.Pipe, error) { return r.status(false).Pipes, nil })
	get(a, "/v1/pipes/{name}/{address}", "one pipe", func(in *pipeInput) (api.Pipe, error) {
		return find(r.status(false).Pipes, "pipe to "+in.Name+" at "+in.Address, func(p api.Pipe) bool { return p.Device == in.Name && p.Address == in.Address })
	})

	get(a, "/v1/subflows", "subflows of all bonds, or those that a helper relays", func(*nothing) ([]api.Subflow, error) { return r.subflows(), nil })
	get(a, "/v1/subflows/{bond}/{path}", "one subflow", func(in *subflowInput) (api.Subflow, error) {
		return find(r.subflows(), fmt.Sprintf("subflow %d of bond %s", in.Path, in.Bond), func(s api.Subflow) bool { return s.Bond == bondID(in.Bond) && uint64(s.ID) == in.Path })
	})
	do(a, http.MethodPatch, "/v1/subflows/{bond}/{path}", "move a helped subflow to another pipe", func(in *moveInput) error {
		if r.MoveSubflow == nil {
			return unsupported("moving a subflow")
		}
		return r.MoveSubflow(bondID(in.Bond), uint32(in.Path), in.Body.Pipe)
	})
	do(a, http.MethodDelete, "/v1/subflows/{bond}/{path}", "end a subflow: what it carried goes over others, and a new one is made", func(in *subflowInput) error {
		if r.CloseSubflow == nil {
			return unsupported("ending a subflow")
		}
		return r.CloseSubflow(bondID(in.Bond), uint32(in.Path))
	})

	get(a, "/v1/streams", "open streams of all bonds, of each the newest first", func(*nothing) ([]api.StreamOf, error) { return r.streams(), nil })
	get(a, "/v1/streams/{bond}/{stream}", "one stream", func(in *streamInput) (api.StreamOf, error) {
		return find(r.streams(), fmt.Sprintf("stream %d of bond %s", in.Stream, in.Bond), func(s api.StreamOf) bool { return s.Bond == in.Bond && s.ID == in.Stream })
	})
	get(a, "/v1/flows", "open datagram flows of all bonds, of each the one used last first", func(*nothing) ([]api.FlowOf, error) { return r.flows(), nil })
	get(a, "/v1/flows/{bond}/{flow}", "one datagram flow", func(in *flowInput) (api.FlowOf, error) {
		return find(r.flows(), fmt.Sprintf("flow %d of bond %s", in.Flow, in.Bond), func(f api.FlowOf) bool { return f.Bond == in.Bond && f.ID == in.Flow })
	})
	do(a, http.MethodPatch, "/v1/streams/{bond}/{stream}", "treat a stream otherwise: its mode, priority and weight", func(in *changeInput) error {
		switch {
		case r.ChangeStream == nil:
			return unsupported("changing a stream")
		case in.Body == (api.StreamChange{}):
			return fault.New(fault.Usage, errors.New("nothing is to be changed"), "send mode, priority or weight")
		}
		return r.ChangeStream(in.Bond, in.Stream, in.Body)
	})
	do(a, http.MethodDelete, "/v1/streams/{bond}/{stream}", "reset a stream: the app's connection ends", func(in *streamInput) error {
		if r.ResetStream == nil {
			return unsupported("resetting a stream")
		}
		return r.ResetStream(in.Bond, in.Stream)
	})
	do(a, http.MethodPost, "/v1/chunk", "tell what an app waits for on one of its connections", func(in *chunkInput) error {
		if r.Chunk == nil {
			return unsupported("a chunk mark")
		}
		return r.Chunk(in.Body)
	})
	do(a, http.MethodPut, "/v1/facts", "tell what is known of this device's battery, heat and link", func(in *factsInput) error {
		if r.Facts == nil {
			return unsupported("facts of the device")
		}
		return r.Facts(in.Body)
	})
}

func (r Role) registerDevices(a huma.API) {
	get(a, "/v1/devices", "this device and those that it trusts", func(*nothing) ([]api.Device, error) { return r.status(false).Devices, nil })
	get(a, "/v1/devices/{name}", "one device", func(in *nameInput) (api.Device, error) {
		return find(r.status(false).Devices, "device "+in.Name, func(d api.Device) bool { return d.Name == in.Name })
	})
	do(a, http.MethodPatch, "/v1/devices/{name}", "give a device another name, pause or resume it", func(in *deviceInput) error {
		name, paused := in.Body.Name, in.Body.Paused
		switch {
		case r.Keeper == nil:
			return unsupported("changing a device")
		case (name == nil) == (paused == nil):
			return fault.New(fault.Usage, errors.New("one change at a time, and one at least"), "send either name or paused")
		case name != nil:
			return r.Keeper.Rename(in.Name, *name)
		}
		return r.Keeper.Pause(in.Name, *paused)
	})
	do(a, http.MethodDelete, "/v1/devices/{name}", "revoke a device: it is trusted no longer, and what is open with it ends", func(in *nameInput) error {
		if r.Keeper == nil {
			return unsupported("revoking a device")
		}
		return r.Keeper.Revoke(in.Name)
	})
}

func (r Role) registerPair(a huma.API) {
	elsewhere := fault.New(fault.Unsupported, errors.New("pairing by the code of another device: not here"), "codes are told to a primary; server and helper show them: `mpbond accept`")
	get(a, "/v1/pair", "what has become of the last pairing", func(*nothing) (p api.Pairing, err error) {
		if r.Pairer == nil {
			return p, elsewhere
		}
		return r.Pairer.Current(), nil
	})
	op := operation(http.MethodPost, "/v1/pair", "pair with the devices that show these codes; GET tells what becomes of it")
	op.DefaultStatus = http.StatusAccepted
	handle(a, op, func(_ context.Context, in *pairInput) (*answer[api.Pairing], error) {
		if r.Pairer == nil {
			return nil, problemOf(elsewhere)
		}
		p, err := r.Pairer.Pair(in.Body)
		if err != nil {
			return nil, problemOf(err)
		}
		return &answer[api.Pairing]{"no-store", p}, nil
	})
}

func (r Role) registerInvitation(a huma.API) {
	get(a, "/v1/invitation", "the last code for pairing, and what has become of it", func(*nothing) (i api.Invitation, err error) {
		if r.Inviter == nil {
			return i, unsupported("codes for pairing")
		}
		return r.Inviter.Current(), nil
	})
	handle(a, operation(http.MethodPost, "/v1/invitation", "make a new code for pairing"), func(context.Context, *nothing) (*answer[api.Invitation], error) {
		if r.Inviter == nil {
			return nil, problemOf(unsupported("codes for pairing"))
		}
		i, err := r.Inviter.Invite()
		if err != nil {
			return nil, problemOf(err)
		}
		return &answer[api.Invitation]{"no-store", i}, nil
	})
}

func (r Role) registerPolicy(a huma.API) {
	keeper := func() (*api.PolicyKeeper, error) {
		if r.Policy == nil {
			return nil, unsupported("a policy")
		}
		return r.Policy, nil
	}
	get(a, "/v1/policy", "the policy file, and what is in force", func(*nothing) (p api.Policy, err error) {
		k, err := keeper()
		if err != nil {
			return p, err
		}
		return k.Get(), nil
	})
	registerText(a, http.MethodPut, "/v1/policy", "write the policy file, and put it in force", func(in api.PolicyText) (p api.Policy, err error) {
		k, err := keeper()
		if err != nil {
			return p, err
		}
		return k.Put(in)
	})
	registerText(a, http.MethodPost, "/v1/policy/check", "whether a policy can be used, and what would happen to a connection", func(in api.PolicyCheck) (p api.PolicyAnswer, err error) {
		k, err := keeper()
		if err != nil {
			return p, err
		}
		return k.Check(in)
	})
}

// registerText registers what takes a text of some length.
func registerText[I, T any](a huma.API, method, path, summary string, f func(I) (T, error)) {
	o := operation(method, path, summary)
	o.MaxBodyBytes = maxText
	handle(a, o, func(_ context.Context, in *struct{ Body I }) (*answer[T], error) {
		body, err := f(in.Body)
		if err != nil {
			return nil, problemOfText(err)
		}
		return &answer[T]{"no-store", body}, nil
	})
}

// bondID is the bond of a subflow; "-" stands for the empty one in a URL.
func bondID(s string) string {
	if s == "-" {
		return ""
	}
	return s
}

// find is the one of a list that there should be.
func find[T any](list []T, what string, is func(T) bool) (one T, err error) {
	if i := slices.IndexFunc(list, is); i >= 0 {
		return list[i], nil
	}
	return one, fault.New(fault.NotFound, fmt.Errorf("there is no %.200s", what), "the list has all that there are")
}

// status is the role's with lists that are never null.
func (r Role) status(why bool) api.Status {
	s := r.Describe(why)
	s.Devices, s.Pipes, s.Bonds = list(s.Devices), list(s.Pipes), list(s.Bonds)
	for i := range s.Bonds {
		s.Bonds[i].Paths = list(s.Bonds[i].Paths)
	}
	return s
}

func (r Role) subflows() []api.Subflow {
	all := []api.Subflow{}
	for _, b := range r.Describe(false).Bonds {
		for _, p := range b.Paths {
			if p.ID != 0 { // else there is none, but the reason why
				all = append(all, api.Subflow{Bond: b.ID, Peer: b.Peer, Path: p})
			}
		}
	}
	if r.Subflows != nil {
		all = append(all, r.Subflows()...)
	}
	return all
}

func (r Role) streams() []api.StreamOf {
	if r.Streams == nil {
		return []api.StreamOf{}
	}
	return list(r.Streams())
}

func (r Role) flows() []api.FlowOf {
	if r.Flows == nil {
		return []api.FlowOf{}
	}
	return list(r.Flows())
}

// list is l, but never nil.
func list[T any](l []T) []T {
	if l == nil {
		return []T{}
	}
	return l
}
