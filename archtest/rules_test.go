// SPDX-License-Identifier: Apache-2.0

package archtest

// importRule restricts what the table of layers allows: besides its own subfolders a package
// imports only what the rule permits. Tests may import what they need.
type importRule struct {
	// from lists the importing folders; empty means all but those in except.
	from, except []string
	// to lists folders that they must not import.
	to []string
	// only, if set, lists the only folders of the module that they may import.
	only   []string
	reason string
}

// purePackages have no sockets, clocks, goroutines or unseeded randomness.
var purePackages = []string{
	"core/bond", "core/sched",
	"link/congestion", "link/estimate", "link/wire",
	"control/policy",
	"base/event", "base/fault", "base/span", "base/text", "base/unit",
	"pbe/cc", "pbe/cell", "pbe/census", "pbe/lte",
	"onload/allowance", "onload/board", "onload/simulate",
	"lab/lte", "lab/mptcp", "lab/radio", "lab/replay", "lab/virtual", "lab/virtual/network",
	"link/tcpinfo",
}

// Groups of folders for the rules.
var (
	productFolders  = []string{"node", "control", "core", "api", "link", "base", "onload", "pbe"}
	dataPathFolders = []string{"node/intercept", "core", "link/congestion", "link/estimate", "link/subflow",
		"link/pipe",
		"link/wire", "link/tcp", "link/splice"}
	roleFolders = []string{"node/primary", "node/helper", "node/server"}
	cellFolders = []string{"lab/lte", "lab/virtual"} // deleted with pbe
)

// importRules apply within layers and between them.
var importRules = []importRule{
	{from: []string{"cmd/mpbond", "cmd/cellwatch"}, to: []string{"lab", "pbe/flow"},
		reason: "mpbond-lab alone holds the measuring instruments"},
	{from: []string{"cmd/mpbond"}, to: []string{"pbe/air", "pbe/lte", "pbe/census"},
		reason: "cellwatch alone decodes cells"},
	{from: []string{"cmd/mpbond"}, to: []string{"internal/chart"},
		reason: "the console draws its charts in the browser"},
	{from: []string{"cmd/mpbond-lab"}, to: []string{"node"}, reason: "it runs the roles as processes"},
	{from: []string{"cmd/cellwatch"}, only: []string{"internal/chart", "internal/cli", "base", "pbe"},
		reason: "it needs no bond"},
	{from: productFolders, to: []string{"lab"}, reason: "the product never depends on its own measuring instruments"},
	{except: []string{"cmd", "lab/exp"}, to: []string{"lab/replay"}, reason: "a replay judges the core from outside"},
	{except: []string{"cmd"}, to: roleFolders,
		reason: "roles are thin and meet on the network only; what two of them share is a package of its own"},
	{from: dataPathFolders, to: []string{"control", "api", "link/discovery", "link/pairing", "base/store",
		"node/dial", "node/doctor"},
		reason: "control opens and closes subflows; the data path knows nothing of batteries, policies or consoles"},
	{from: dataPathFolders, to: []string{"node/endpoint"},
		reason: "endpoint drives the packages of the data path, not the other way round"},

	// base
	{from: []string{"base/backoff", "base/event", "base/unit", "base/fault", "base/span", "base/text",
		"base/loglimit", "base/dialpolicy", "base/pace", "base/userfile"}, only: []string{},
		reason: "all others use them, so they know none"},
	{from: []string{"base/config"}, only: []string{"base/fault", "base/userfile"},
		reason: "it fills structs of others without knowing them"},
	{from: []string{"base/identity"}, only: []string{"base/fault", "base/text", "base/config", "base/userfile"},
		reason: "who a device is does not depend on what it does"},

	// link
	{from: []string{"link/wire"}, only: []string{"base/unit"},
		reason: "the specification depends on no implementation"},
	{from: []string{"link/estimate"}, only: []string{"base/unit", "link/wire"},
		reason: "estimates are made of numbers alone"},
	{from: []string{"link/congestion"}, only: []string{}, reason: "the choice is made of numbers alone"},
	{from: []string{"link/tcpinfo"}, only: []string{"base/unit", "link/estimate"},
		reason: "what a kernel reports becomes a sample without a kernel"},
	{from: []string{"link/tcp"}, only: []string{"base/unit", "base/fault", "link/congestion", "link/estimate",
		"link/tcpinfo"},
		reason: "tcp is a transport and knows nothing of what it carries"},
	{from: []string{"link/pairing"}, only: []string{"base/fault", "base/loglimit", "base/text", "base/identity",
		"link/tcp", "link/wire"}, reason: "two devices meet before either has a role to play"},
	{from: []string{"link/discovery", "link/splice", "link/udpsock"}, only: []string{"base/pace"},
		reason: "they know the network and none of its users"},

	// core
	{from: []string{"core/sched"}, only: []string{"base/unit", "link/wire", "link/estimate"},
		reason: "a scheduler sees plain values, never a subflow: it also runs offline on a trace"},
	{from: []string{"core/bond"}, only: []string{"base/unit", "base/fault", "base/span", "link/wire", "link/estimate",
		"core/sched", "core/trace"},
		reason: "the bond runs in virtual time, without anything that does I/O (of trace it uses the event and " +
			"the ring)"},
	{from: []string{"core/trace"}, only: []string{"base/unit", "base/fault", "base/userfile", "link/wire"},
		reason: "all others report to it, so it knows none"},

	// api, node
	{from: []string{"api"}, only: []string{"base/unit", "base/fault", "base/text", "base/userfile"},
		reason: "the types of the local API are a contract, not a view of our internals"},
	{from: []string{"node/endpoint"}, only: []string{"base/unit", "base/fault", "link/congestion", "link/estimate",
		"link/subflow", "link/wire", "core/bond", "core/trace"},
		reason: "it drives the core and its subflows; the role hands in what policy chooses, and describes the state"},
	{from: []string{"node/probe"}, only: []string{"base/unit", "api"},
		reason: "it speaks over any stream, and knows nothing of bonds"},

	// pbe
	{from: []string{"pbe/transport"}, only: []string{"base/span", "base/backoff", "base/unit", "base/fault",
		"link/estimate", "link/tcp", "pbe/cc"}, reason: "a transport like tcp (whose limit on strangers it uses), " +
		"which knows nothing of what it carries"},
	{from: []string{"pbe/lte"}, only: []string{"base/fault", "pbe/cell"},
		reason: "a decoder makes control messages of samples, whatever their source"},
	{from: []string{"pbe/lte/tbs"}, only: []string{},
		reason: "tables of a standard, for the decoder and for the model"},
	{from: []string{"pbe/air"}, only: []string{"base/fault", "pbe/cell", "pbe/lte", "pbe/source"},
		reason: "it turns samples into control messages for any listener"},
	{from: []string{"pbe/source"}, only: []string{"base/fault", "base/userfile"}, reason: "it opens what others read"},
	{from: []string{"pbe/census"}, only: []string{"base/unit", "pbe/cell", "pbe/lte"},
		reason: "it counts control messages, whatever their source"},
	{from: []string{"pbe/listen"}, only: []string{"base/backoff", "base/fault", "base/unit", "pbe/cell", "pbe/cc",
		"pbe/source"},
		reason: "it listens to cells for any transport"},

	// onload
	{from: []string{"onload"}, except: []string{"onload/allowance", "onload/dataplan"},
		to: []string{"control", "link/wire", "link/estimate", "link/subflow", "link/pipe"},
		reason: "it works without a bonding server, and knows no bond (policy defines months and volumes for " +
			"allowances)"},
	{from: []string{"onload/board"}, only: []string{"base/unit", "base/fault"},
		reason: "it decides from numbers, in virtual time too"},
	{from: []string{"onload/simulate"}, only: []string{"base/span", "base/unit", "onload/board"},
		reason: "it decides from numbers, in virtual time"},
	{from: []string{"onload/transfer"}, only: []string{"base/backoff", "base/unit", "base/fault", "onload/board"},
		reason: "it runs a board's jobs, whatever they carry"},
	{from: []string{"onload/fetch"}, only: []string{"base/unit", "base/fault", "base/span", "base/text",
		"base/userfile", "onload/board", "onload/transfer"},
		reason: "it moves items over whatever devices it is given"},
	{from: []string{"onload/upload"}, only: []string{"base/unit", "base/fault", "base/text", "base/store",
		"base/userfile", "onload/board", "onload/transfer"},
		reason: "it moves files over whatever devices it is given"},
	{from: []string{"onload/playlist"}, only: []string{"base/unit", "base/fault", "base/span", "link/splice",
		"onload/board", "onload/fetch", "onload/transfer"}, reason: "it serves players over whatever devices it " +
		"is given"},
	{from: []string{"onload/page"}, only: []string{"base/unit", "base/fault", "base/text", "link/tcp", "base/store",
		"base/userfile", "onload/transfer", "onload/upload"}, reason: "it takes files from browsers and has them " +
		"sent; its caller decides who may carry them"},
	{from: []string{"onload/relay"}, only: []string{"base/unit", "base/fault", "base/loglimit", "base/text",
		"base/identity", "base/dialpolicy", "link/splice", "link/tcp", "link/discovery"},
		reason: "it carries connections for those it trusts; its caller decides how much"},
	{from: []string{"onload/allowance"}, only: []string{"base/unit", "control/policy"},
		reason: "an allowance is computed from numbers, whatever their source"},
	{from: []string{"onload/permit"}, only: []string{"base/fault", "base/identity", "base/store", "base/text",
		"base/userfile", "link/tcp", "onload/allowance", "onload/relay"}, reason: "it reports loads and grants " +
		"permits; others measure the one and use the other"},
	{from: []string{"onload/dataplan"}, only: []string{"base/unit", "base/fault", "base/store", "control/device",
		"control/policy"}, reason: "it keeps what an interface has counted, and decides nothing"},

	// lab
	{from: []string{"lab"}, except: []string{"lab/lte", "lab/virtual", "lab/exp", "lab/replay"},
		only: []string{"lab", "base/unit", "base/fault", "base/config", "base/natsconn", "core/trace", "api",
			"pbe/cell", "pbe/lte"},
		reason: "the lab measures the real program, as processes, like any other; it must not reach into it (but " +
			"emulates cells, also as samples)"},
	{from: []string{"lab/queue"}, only: []string{"base/fault", "base/natsconn"},
		reason: "it carries tasks and results, whatever they are"},
	{except: []string{"cmd"}, to: []string{"lab/queue"}, reason: "experiments know a queue by what they need of it"},
	{from: cellFolders, except: []string{"lab/virtual/network"}, only: []string{"base/event", "base/unit", "base/fault",
		"lab/lte", "pbe/cell", "pbe/cc",
		"pbe/lte"},
		reason: "emulated cells send control messages, also as samples, and controllers run in virtual time; they " +
			"know nothing else of the program"},
	{from: []string{"lab/virtual/network"}, only: []string{"base/event", "base/unit", "link/congestion", "link/wire",
		"link/estimate",
		"link/tcpinfo", "core/sched", "core/bond", "core/trace", "pbe/cc", "lab/vary"},
		reason: "it judges the core in virtual time, without anything that does I/O"},
	{from: []string{"lab/replay"}, only: []string{"base/event", "base/unit", "base/fault", "link/wire",
		"link/estimate", "core/sched", "core/bond", "core/trace"},
		reason: "a replay is the core in virtual time, without anything that does I/O"},
}

// pureImports are what pure packages must not import.
var pureImports = map[string]string{
	"os": "files and processes", "os/exec": "processes", "os/signal": "signals", "net": "sockets",
	"net/http": "sockets",
	"syscall":  "the system", "golang.org/x/sys/unix": "the system", "log": "global state",
	"log/slog": "the hot path counts, it does not log",
	"sync":     "there are no goroutines to guard against", "sync/atomic": "there are no goroutines to guard against",
	"context": "there is nothing to cancel", "crypto/rand": "randomness that cannot be repeated",
	"math/rand": "use math/rand/v2 with a seed",
	"runtime":   "the machine", "unsafe": "no need", "C": "no need",
}

// pureCalls are the functions that pure packages must not use.
var pureCalls = map[string]map[string]bool{
	"time": setOf("Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker",
		"Tick"),
	module + "/core/trace": setOf("Recorder", "New", "Open", "Read", "Merge"),
	// Everything but the constructors, which take a seed.
	"math/rand/v2": setOf("Int", "IntN", "Int32", "Int32N", "Int64", "Int64N", "Uint", "UintN", "Uint32", "Uint32N",
		"Uint64", "Uint64N",
		"N", "Float32", "Float64", "ExpFloat64", "NormFloat64", "Perm", "Shuffle"),
}

// characterTests are functions and tables that decide what can be shown; only base/text may use
// them.
var characterTests = map[string]map[string]bool{
	"unicode": setOf("IsControl", "IsPrint", "IsGraphic", "Cc", "Cf", "C", "Other", "Bidi_Control",
		"Other_Default_Ignorable_Code_Point"),
	"strconv": setOf("IsPrint", "IsGraphic"),
}

const pureReason = "pure packages take the time and the seed as parameters, " +
	"so that thousands of virtual-time cases run in seconds and each can be repeated"

// libraries maps modules, with all their packages, to the only folders that may import them.
var libraries = map[string]struct {
	only   []string
	reason string
}{
	"github.com/gdamore/tcell/v2": {[]string{"cmd", "internal/cli"}, "the screen is an edge"},
	"github.com/aws/aws-sdk-go-v2": {[]string{"onload/upload"},
		"signing is an edge: of all that Amazon has, nothing else is wanted"},
	"github.com/spf13/cobra":       {[]string{"cmd", "internal/cli"}, "the command line is an edge"},
	"github.com/vbauerster/mpb/v8": {[]string{"cmd", "internal/cli"}, "the screen is an edge"},
	"go.uber.org/goleak":           {[]string{"e2e"}, "for tests"},
	"github.com/danielgtaylor/huma/v2": {[]string{"api/serve"},
		"the types of the API do not depend on what serves them"},
	"github.com/prometheus/client_golang": {nil, "tests read /metrics with it; in a program it takes 2 MB"},
	"gvisor.dev/gvisor": {[]string{"node/intercept/tun"},
		"a TCP/IP stack has many types of its own; they end where packets become connections"},
	"github.com/hashicorp/mdns": {[]string{"link/discovery"},
		"one package decides what is sent to a network and received from it"},
	"github.com/nats-io/nats.go": {[]string{"control/fleet/natsstore", "lab/queue", "base/natsconn"},
		"streams and consumers are an edge: fleets know records, and experiments tasks and results"},
	"github.com/bytemare/opaque":   {[]string{"link/pairing"}, "one place decides how a code is proved"},
	"github.com/mdp/qrterminal/v3": {[]string{"cmd"}, "the screen is an edge"},
	"github.com/fsnotify/fsnotify": {[]string{"cmd"}, "files are an edge"},
	"gonum.org/v1/plot": {[]string{"lab/exp", "internal/chart"},
		"it brings fonts and three back ends; the product's charts are drawn in the browser"},
}

// Limits. The lists below name exceptions with their reasons.
const (
	maxLines   = 600
	maxParams  = 5
	maxMethods = 5
)

// longFiles lists files of over maxLines lines with the reason.
var longFiles = map[string]string{}

// longCalls lists functions of over maxParams parameters, as "file:name", with the reason.
var longCalls = map[string]string{}

// wideInterfaces lists interfaces of over maxMethods methods, as "file:name", with the reason.
var wideInterfaces = map[string]string{
	"link/pipe/carrier.go:Conn":    "a net.Conn whose sending side can be watched: its parts are of no use alone",
	"control/fleet/store.go:Store": "records, watches and events of one engine: one suite tests them together",
}

func setOf(names ...string) map[string]bool {
	m := map[string]bool{}
	for _, n := range names {
		m[n] = true
	}
	return m
}
