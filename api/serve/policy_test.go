// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"mpbond/api"
	"mpbond/base/fault"
)

// misplaced is an error with a position.
type misplaced struct{ error }

func (misplaced) Place() (int, int, string) { return 3, 7, "mode" }

// TestPolicy: policies are returned, changed and checked; an unusable one is answered with the
// position of the error.
func TestPolicy(t *testing.T) {
	text := ""
	take := func(s string) error {
		if strings.Contains(s, "mod=") {
			return fault.New(
				fault.Config,
				fmt.Errorf("policy: %w", misplaced{errors.New("unknown setting")}),
				"did you mean it?",
			)
		}
		return nil
	}
	k := &api.PolicyManager{
		Get: func() api.Policy { return api.Policy{File: "p", Text: text, Rules: []api.PolicyRule{}} },
		Put: func(in api.PolicyText) (api.Policy, error) {
			if in.Version != nil && *in.Version == "old" {
				return api.Policy{}, fault.New(fault.Exists, errors.New("changed"), "")
			}
			err := take(in.Text)
			if err == nil {
				text = in.Text
			}
			return api.Policy{Text: text, Rules: []api.PolicyRule{}}, err
		},
		Check: func(in api.PolicyCheck) (a api.PolicyAnswer, err error) {
			if in.Text != nil {
				err = take(*in.Text)
			}
			if in.Flow != nil {
				a.Verdict = &api.PolicyClass{Mode: "block", Reason: in.Flow.Host}
			}
			return a, err
		},
	}
	long := strings.Repeat("# 4 KB are not enough for rules\n", 1000)
	body := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	r := Role{Status: exampleStatus, Policy: k}
	const place = `"line":3,"column":7,"nearest":"mode"`
	for _, c := range []struct {
		method, target, body string
		status               int
		holds                string
	}{
		{"GET", "/v2/policy", "", 200, `"file":"p"`},
		{"PUT", "/v2/policy", body(api.PolicyText{Text: long}), 200, `"text":"# 4 KB`},
		{"PUT", "/v2/policy", body(api.PolicyText{Text: "mod=1"}), 422, place},
		{"PUT", "/v2/policy", `{"text":"","version":"old"}`, 409, `"kind":"exists"`},
		{"GET", "/v2/policy", "", 200, `"text":"# 4 KB`},
		{"PUT", "/v2/policy", `{"text":"","frob":1}`, 400, "frob"},
		{"PUT", "/v2/policy", `{}`, 400, "text"},
		{"PUT", "/v2/policy", body(api.PolicyText{Text: strings.Repeat("x", maxText)}), 413, `"kind":"limit"`},
		{"PUT", "/v2/policy", body(api.PolicyText{Text: strings.Repeat("x", 1<<20+1)}), 400, `"kind":"usage"`},
		{"POST", "/v2/policy/check", `{}`, 200, `"rules":0`},
		{"POST", "/v2/policy/check", `{"text":"mod="}`, 422, place},
		{"POST", "/v2/policy/check", `{"flow":{"host":"example.org","port":443,"uid":0}}`, 200, `"reason":"example.org"`},
		{"POST", "/v2/policy/check", `{"flow":{"host":"example.org","port":0}}`, 400, "port"},
		{"POST", "/v2/policy/check", `{"flow":{"host":"","port":1}}`, 400, "host"},
		{"POST", "/v2/policy/check", `{"flow":{"host":"x","port":65536}}`, 400, "port"},
		{"POST", "/v2/policy/check", `{"flow":{"host":"x","port":1,"frob":1}}`, 400, "frob"},
		{"POST", "/v2/policy", "{}", 405, " or PUT"},
	} {
		w := request(r, c.method, c.target, c.body)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.holds) {
			t.Errorf(
				"%s %s %.60s: %d %.300s, want %d and %s",
				c.method,
				c.target,
				c.body,
				w.Code,
				w.Body,
				c.status,
				c.holds,
			)
		}
		if c.status >= 400 && w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %s: %v", c.method, c.target, w.Header())
		}
	}
	for _, c := range [][2]string{{"GET", "/v2/policy"}, {"PUT", "/v2/policy"}, {"POST", "/v2/policy/check"}} {
		if w := request(Role{Status: exampleStatus}, c[0], c[1], map[bool]string{true: "",
			false: `{"text":""}`}[c[0] == "GET"]); w.Code != 501 {
			t.Errorf("%s %s at a helper: %d %s", c[0], c[1], w.Code, w.Body)
		}
	}
}
