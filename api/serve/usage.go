package serve

import (
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"mpbond/api"
)

func (r Role) registerUsage(a huma.API) {
	op := operation(http.MethodGet, "/v1/usage", "what this device's links carried, by day and month; a table with Accept: text/csv")
	op.Middlewares = huma.Middlewares{func(ctx huma.Context, next func(huma.Context)) {
		if r.Usage == nil || !strings.Contains(ctx.Header("Accept"), "text/csv") {
			next(ctx)
			return
		}
		ctx.SetHeader("Content-Type", "text/csv; charset=utf-8")
		ctx.SetHeader("Cache-Control", "no-store")
		ctx.SetStatus(http.StatusOK)
		_ = r.usage().CSV(ctx.BodyWriter()) // an error means that nobody listens any more
	}}
	register(a, op, func(*nothing) (u api.Usage, err error) {
		if r.Usage == nil {
			return u, unsupported("usage")
		}
		return r.usage(), nil
	})
}

func (r Role) usage() api.Usage {
	u := r.Usage()
	u.Days, u.Months = list(u.Days), list(u.Months)
	return u
}
