package house

// wall forbids imports between rooms of this module. A room stands for its
// subfolders too. Tests may import what they need.
type wall struct {
	// from lists the importing rooms; empty means all, but for those in except.
	from, except []string
	// to lists rooms that they must not import.
	to []string
	// only, if set, lists the only rooms of the module that they may import,
	// besides their own subfolders.
	only   []string
	reason string
}

// Groups of rooms.
var (
	pure     = []string{"bond", "sched", "estimate", "policy", "wire", "unit", "fault", "plaintext", "replay", "lab/radio", "pbe/cell", "pbe/cc", "pbe/lte", "pbe/census", "lab/virtual", "lab/lte", "onload/simulate", "onload/allow"}
	pureOnly = []string{"onload"} // but not its subfolders
	dataPath = []string{"intercept", "bond", "sched", "estimate", "subflow", "pipe", "wire", "tcp", "splice"}
	roles    = []string{"primary", "helper", "server"}
	sisters  = []string{"onload", "pbe"}
	cellular = []string{"lab/lte", "lab/virtual"} // deleted with pbe
	control  = []string{"device", "doctor", "discovery", "pairing", "policy", "paths", "store", "api", "console"}
)

var walls = []wall{
	{to: []string{"cmd"}, reason: "cmd only wires: what others need belongs into a room of its own"},
	{except: []string{"cmd", "lab", "exp", "e2e"}, to: []string{"lab", "exp"}, reason: "the product never depends on its own measuring instruments"},
	{except: []string{"cmd", "exp"}, to: []string{"replay"}, reason: "a replay judges the core from outside"},
	{from: []string{"replay"}, only: []string{"unit", "wire", "estimate", "sched", "bond", "fault", "trace"},
		reason: "a replay is the core in virtual time, without anything that does I/O"},
	{from: []string{"lab"}, except: cellular, only: []string{"unit", "fault", "config", "trace", "api", "pbe/cell", "pbe/lte"},
		reason: "the lab measures the real program, as processes, like any other; it must not reach into it (but speaks as cells do, also by samples)"},
	{from: cellular, only: []string{"unit", "fault", "pbe/cell", "pbe/cc", "pbe/lte"},
		reason: "emulated cells speak in control messages, also as samples, and controllers run in virtual time; they know nothing else of the program"},
	{except: append([]string{"cmd", "exp", "onload", "pbe", "lab"}, cellular...), to: sisters, reason: "sister systems can be deleted without touching the bond"},
	{except: []string{"cmd"}, to: roles, reason: "roles are thin and meet on the network only; what two of them share is a room below"},
	{from: dataPath, to: control, reason: "control touches data by opening and closing subflows; data knows nothing of batteries, policies or consoles"},
	{from: dataPath, to: []string{"endpoint"}, reason: "endpoint drives the rooms of the data path, not the other way round"},
	{from: []string{"unit", "fault", "plaintext"}, only: []string{}, reason: "everybody uses them, so they know nobody"},
	{from: []string{"wire"}, only: []string{"unit"}, reason: "the specification depends on no implementation"},
	{from: []string{"estimate"}, only: []string{"unit", "wire"}, reason: "estimates are made of numbers alone"},
	{from: []string{"sched"}, only: []string{"unit", "wire", "estimate"}, reason: "a scheduler sees plain values, never a subflow: it also runs offline on a trace"},
	{from: []string{"bond"}, only: []string{"unit", "wire", "estimate", "sched", "fault", "trace"},
		reason: "the bond runs in virtual time, without anything that does I/O (of trace it uses the event and the ring)"},
	{from: []string{"tcp"}, only: []string{"unit", "fault", "estimate"}, reason: "tcp is a transport and knows nothing of what it carries"},
	{from: []string{"pbe/udp"}, only: []string{"unit", "fault", "estimate", "tcp", "pbe/cc"}, reason: "a transport as tcp is one (of which it has the bound on strangers), and knows nothing of what it carries"},
	{from: []string{"pbe/lte"}, only: []string{"fault", "pbe/cell"}, reason: "a decoder makes control messages of samples, whoever brings these"},
	{from: []string{"pbe/air"}, only: []string{"fault", "pbe/cell", "pbe/lte", "pbe/source"}, reason: "it turns samples into control messages, whoever wants these"},
	{from: []string{"pbe/source"}, only: []string{"fault", "userfile"}, reason: "it opens what others read, and knows nothing of that"},
	{from: []string{"pbe/lte/tbs"}, only: []string{}, reason: "tables of a standard, for the decoder and for the model"},
	{from: []string{"pbe/census"}, only: []string{"unit", "pbe/cell", "pbe/lte"}, reason: "it counts what is heard, whoever hears it and whoever looks"},
	{from: []string{"pbe/listen"}, only: []string{"fault", "pbe/cell", "pbe/cc", "pbe/source"}, reason: "it hears cells for whatever transport asks, and knows none"},
	{from: []string{"trace"}, only: []string{"unit", "fault", "wire", "userfile"}, reason: "everybody may tell it things, so it knows nobody"},
	{from: []string{"identity"}, only: []string{"fault", "config", "userfile"}, reason: "who a device is does not depend on what it does"},
	{from: []string{"pairing"}, only: []string{"fault", "loglimit", "plaintext", "identity", "tcp", "wire"}, reason: "two devices meet before either has a role to play"},
	{from: []string{"loglimit"}, only: []string{}, reason: "it writes what others log, whatever that is"},
	{from: []string{"discovery"}, only: []string{}, reason: "what a network says is nobody's word: it has addresses and no judgement"},
	{from: []string{"onload"}, except: []string{"onload/allow", "onload/plan"}, to: []string{"bond", "sched", "estimate", "wire", "subflow", "pipe", "paths", "policy", "endpoint", "pbe"},
		reason: "it works where no bonding server is, and knows no bond (what a month and a volume are policy says)"},
	{from: []string{"onload/fetch", "onload/simulate"}, only: []string{"unit", "fault", "plaintext", "userfile"}, reason: "it moves items over whatever devices it is given"},
	{from: []string{"onload/allow"}, only: []string{"unit", "policy"}, reason: "an allowance is reckoned from numbers, whoever has measured or told them"},
	{from: []string{"onload/permit"}, only: []string{"fault", "identity", "store", "tcp"}, reason: "it tells loads and permits, whoever measures the one and uses the other"},
	{from: []string{"onload/plan"}, only: []string{"unit", "fault", "device", "policy", "store"}, reason: "it keeps what an interface has counted, and decides nothing"},
	{from: []string{"onload/upload"}, only: []string{"unit", "fault", "plaintext", "store", "userfile"}, reason: "it moves files over whatever devices it is given"},
	{from: []string{"onload/playlist"}, only: []string{"unit", "fault", "splice"}, reason: "it serves players over whatever devices it is given"},
	{from: []string{"onload/page"}, only: []string{"unit", "fault", "tcp", "store", "userfile", "onload/fetch", "onload/upload"}, reason: "it takes files of browsers and has them sent; who may carry what it is told"},
	{from: []string{"onload/relay"}, only: []string{"unit", "fault", "loglimit", "plaintext", "identity", "reach", "splice", "tcp", "discovery"},
		reason: "it carries connections for those it trusts; what a helper may carry it is told"},
	{from: []string{"reach"}, only: []string{}, reason: "it judges addresses, whoever connects to them"},
	{from: []string{"measure"}, only: []string{"unit", "api"}, reason: "it speaks over any stream, and knows nothing of bonds"},
	{from: []string{"userfile"}, only: []string{}, reason: "a file's owner and rights are the system's, not ours"},
	{from: []string{"config"}, only: []string{"fault", "userfile"}, reason: "it fills structs of others without knowing them"},
	{from: []string{"api"}, only: []string{"unit", "fault", "plaintext", "userfile"}, reason: "the types of the local API are a contract, not a view of our internals"},
}

// pureImports are what pure rooms must not import.
var pureImports = map[string]string{
	"os": "files and processes", "os/exec": "processes", "os/signal": "signals", "net": "sockets", "net/http": "sockets",
	"syscall": "the system", "golang.org/x/sys/unix": "the system", "log": "global state", "log/slog": "the hot path counts, it does not log",
	"sync": "there are no goroutines to guard against", "sync/atomic": "there are no goroutines to guard against",
	"context": "there is nothing to cancel", "crypto/rand": "randomness that cannot be repeated", "math/rand": "use math/rand/v2 with a seed",
	"runtime": "the machine", "unsafe": "no need", "C": "no need",
}

// pureCalls are functions that pure rooms must not use.
var pureCalls = map[string]map[string]bool{
	"time":            set("Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"),
	module + "/trace": set("Recorder", "New", "Open", "Read", "Merge"),
	// Everything but the constructors, which take a seed.
	"math/rand/v2": set("Int", "IntN", "Int32", "Int32N", "Int64", "Int64N", "Uint", "UintN", "Uint32", "Uint32N", "Uint64", "Uint64N",
		"N", "Float32", "Float64", "ExpFloat64", "NormFloat64", "Perm", "Shuffle"),
}

const pureReason = "pure rooms are told the time and the seed, so that thousands of virtual-time cases run in seconds and each can be repeated"

// libraries that belong to one place, with all their packages.
var libraries = map[string]struct {
	only   []string
	reason string
}{
	"github.com/gdamore/tcell/v2":         {[]string{"cmd"}, "the screen is an edge"},
	"github.com/aws/aws-sdk-go-v2":        {[]string{"onload/upload"}, "signing is an edge: of all that Amazon has, nothing else is wanted"},
	"github.com/spf13/cobra":              {[]string{"cmd"}, "the command line is an edge"},
	"github.com/vbauerster/mpb/v8":        {[]string{"cmd"}, "the screen is an edge"},
	"go.uber.org/goleak":                  {[]string{"e2e"}, "for tests"},
	"github.com/danielgtaylor/huma/v2":    {[]string{"api/serve"}, "the types of the API do not depend on what serves them"},
	"github.com/prometheus/client_golang": {[]string{"api/serve"}, "figures are told by status; only the API makes metrics of them"},
	"gvisor.dev/gvisor":                   {[]string{"intercept/tun"}, "a TCP/IP stack has many types of its own; they end where packets become connections"},
	"github.com/hashicorp/mdns":           {[]string{"discovery"}, "one place decides what is told to a network and taken from it"},
	"github.com/bytemare/opaque":          {[]string{"pairing"}, "one place decides how a code is proved"},
	"github.com/mdp/qrterminal/v3":        {[]string{"cmd"}, "the screen is an edge"},
	"github.com/fsnotify/fsnotify":        {[]string{"cmd"}, "files are an edge"},
}

// Limits. Whoever needs more gives a reason in the list that follows.
const (
	maxLines   = 600
	maxParams  = 5
	maxMethods = 5
)

// longFiles have over maxLines lines, for a reason.
var longFiles = map[string]string{}

// longCalls are functions of over maxParams parameters, as "file:name".
var longCalls = map[string]string{}

// wideInterfaces have over maxMethods methods, as "file:name".
var wideInterfaces = map[string]string{
	"pipe/carrier.go:Conn": "a net.Conn whose sending side can be watched: one thing, whose parts nobody wants alone",
}

func set(names ...string) map[string]bool {
	m := map[string]bool{}
	for _, n := range names {
		m[n] = true
	}
	return m
}
