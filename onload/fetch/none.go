package fetch

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"mpbond/base/fault"
)

// Reason is why a device cannot do something.
type Reason struct {
	Device string
	Err    error
}

// String is that for people: without the URL, which all have, and the device.
func (r Reason) String() string {
	err := r.Err
	if of := (*url.Error)(nil); errors.As(err, &of) {
		err = of.Err
	}
	return strings.TrimPrefix(err.Error(), "over "+r.Device+": ")
}

// None is the error that none of so many devices can do something: with the reason that
// all have, or that of each as far as it is known. Nil is that none is known.
func None(devices int, list []Reason) error {
	if len(list) == 0 {
		return nil
	}
	if devices == 1 {
		return list[0].Err
	}
	n := &none{text: fmt.Sprintf("over none of %d devices: ", devices)}
	common, offline, as := len(list) == devices, true, fault.KindOf(explain(list[0].Err))
	var each []string
	for _, r := range list {
		n.all = append(n.all, r.Err)
		each = append(each, r.Device+": "+r.String())
		common = common && r.String() == list[0].String()
		kind := fault.KindOf(explain(r.Err))
		offline = offline && (kind == fault.Unreachable || kind == fault.Timeout)
		if kind != as {
			as = fault.Unreachable
		}
	}
	if common {
		each = []string{list[0].String()}
	}
	if n.text += strings.Join(each, "; "); offline && len(list) == devices { // it is none of them
		return fault.New(as, n, "is the address right, and the server there?")
	}
	return n
}

// none has what all of them have met.
type none struct {
	text string
	all  []error
}

// Error implements error.
func (n *none) Error() string { return n.text }

// Unwrap lists them, that of the first device first.
func (n *none) Unwrap() []error { return n.all }
