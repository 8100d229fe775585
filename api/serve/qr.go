// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"rsc.io/qr"

	"mpbond/base/fault"
)

// quietZone is the border of a QR code, in modules (ISO/IEC 18004).
const quietZone = 4

type qrInput struct {
	Format string `path:"format" enum:"svg,png" doc:"of the picture"`
}

// registerQR adds the pairing code as a QR code.
func (r Role) registerQR(a huma.API) {
	op := newOperation(http.MethodGet, "/v2/invitation/{format}", "the valid pairing code as a QR code")
	op.Responses = fileResponses("svg", "png")
	registerTyped(a, op, func(_ context.Context, in *qrInput) (*fileAnswer, error) {
		if r.Invitations == nil {
			return nil, problemForError(unsupportedError("codes for pairing"))
		}
		i := r.Invitations.Current()
		if i.State != "open" {
			return nil, problemForError(
				fault.New(
					fault.NotFound,
					errors.New("there is no valid pairing code"),
					"create one with `mpbond accept`",
				),
			)
		}
		code, err := qr.Encode(i.QR, qr.M)
		if err != nil {
			return nil, problemForError(err)
		}
		body := code.PNG()
		if in.Format == "svg" {
			body = drawQRCodeSVG(code)
		}
		return newFileAnswer("pairing", in.Format, body), nil
	})
}

// drawQRCodeSVG draws a code, dark on light whatever the page's colours, as readers need.
func drawQRCodeSVG(c *qr.Code) []byte {
	var b bytes.Buffer
	side := c.Size + 2*quietZone
	fmt.Fprintf(
		&b,
		`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" shape-rendering="crispEdges">`+
			`<title>QR code for pairing</title><rect width="%d" height="%d" fill="#fff"/><path d="`,
		side,
		side,
		side,
		side,
	)
	for y := range c.Size {
		for x := range c.Size {
			if c.Black(x, y) {
				fmt.Fprintf(&b, "M%d %dh1v1h-1z", x+quietZone, y+quietZone)
			}
		}
	}
	b.WriteString(`"/></svg>`)
	return b.Bytes()
}
