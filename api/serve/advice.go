// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"mpbond/api"
	"mpbond/base/unit"
)

// adviceInput is the query of GET /v2/advice.
type adviceInput struct {
	Bytes     uint64 `query:"bytes" doc:"size of the transfer; 0: the usual ones"`
	Direction string `query:"direction" enum:"down,up" default:"down" doc:"of the transfer: to or from the primary"`
	App       string `query:"app" maxLength:"4096" doc:"path of the executable of an app, whose rules apply"`
}

// registerAdvice registers the forecasts for transfers.
func (r Role) registerAdvice(a huma.API) {
	registerGet(a, "/v2/advice", "which subflows a transfer would use, and what other ones would take",
		func(in *adviceInput) (x api.Advice, err error) {
			if r.Advice == nil {
				return x, unsupportedError("advice")
			}
			return r.Advice(api.AdviceRequest{Bytes: unit.Bytes(in.Bytes), Upload: in.Direction == "up", App: in.App})
		})
	registerGet(a, "/v2/advice/history", "how right forecasts were", func(*noInput) (h api.PastForecasts, err error) {
		if r.PastForecasts == nil {
			return h, unsupportedError("advice")
		}
		return r.PastForecasts(), nil
	})
	registerChange(a, http.MethodDelete, "/v2/advice/history",
		"forget what apps moved from and to destinations, and past forecasts", func(*noInput) error {
			if r.ForgetHistory == nil {
				return unsupportedError("advice")
			}
			return r.ForgetHistory()
		})
}
