// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"strconv"
	"time"

	"mpbond/api"
)

// sample is one value of a metric with its label values.
type sample struct {
	value  float64
	labels []string
}

// metric is one metric: its description and a function that reads its values.
type metric struct {
	name, help string
	counter    bool // else a gauge
	labels     []string
	values     func(s api.Status) []sample
}

// metricList lists the metrics of GET /metrics except those of the Go runtime and the process. A
// counter exists as long as the thing that its labels name.
var metricList = []metric{
	{"mpbond_info", "Always 1; the labels are the role, the name and the version of this mpbond.", false,
		[]string{"role", "name", "version"},
		func(s api.Status) []sample { return []sample{{1, []string{s.Role, s.Name, s.Version}}} }},
	{"mpbond_uptime_seconds", "How long this mpbond has been running.", false, nil,
		func(s api.Status) []sample { return []sample{{s.UptimeSeconds, nil}} }},
	{"mpbond_memory_bytes", "Memory taken from the system and not given back.", false, nil,
		func(s api.Status) []sample { return []sample{{float64(s.MemoryBytes), nil}} }},

	{"mpbond_device_online",
		"1 while a pipe of the device is there, or a subflow that it carries or ends; else 0.", false,
		[]string{"device"}, sampleDevices(func(d api.Device) float64 { return boolSampleValue(d.Online) })},
	{"mpbond_device_battery_ratio", "Battery level of a device that reports it, 0 to 1; this device included.", false,
		[]string{"device"}, sampleFacts(func(f api.Facts) *float64 { return scaleValue(f.BatteryPercent, 0.01) })},
	{"mpbond_device_charging", "1 while a device that reports it charges or is plugged in, else 0.", false,
		[]string{"device"}, sampleFacts(func(f api.Facts) *float64 { return optionalBool(f.Charging) })},
	{"mpbond_device_temperature_celsius", "Temperature of a device that reports it.", false,
		[]string{"device"}, sampleFacts(func(f api.Facts) *float64 { return f.TemperatureC })},
	{"mpbond_device_signal_ratio",
		"Signal strength of the link to the Internet of a device that reports it, 0 to 1.", false,
		[]string{"device"}, sampleFacts(func(f api.Facts) *float64 { return scaleValue(f.SignalPercent, 0.01) })},
	{"mpbond_device_radio_joules_total",
		"Estimated energy that a radio of known kind spent since the start of this mpbond: " +
			"of this device's links and, at a primary, of each helper's link to the Internet.", true,
		[]string{"device", "link", "kind"}, func(s api.Status) (list []sample) {
			for _, d := range s.Devices {
				for _, r := range d.Radios {
					list = append(list, sample{float64(r.Joules), []string{d.Name, r.Link, r.Kind}})
				}
			}
			return list
		}},
	{"mpbond_device_pipes", "Pipes to the device.", false,
		[]string{"device"}, sampleDevices(func(d api.Device) float64 { return float64(d.Pipes) })},
	{"mpbond_device_subflows", "Subflows that the device carries or, for a device at a server, ends.", false,
		[]string{"device"}, sampleDevices(func(d api.Device) float64 { return float64(d.Subflows) })},

	{"mpbond_streams", "Open streams of the bond: one for each TCP connection of an app.", false,
		bondLabels, sampleBonds(func(b api.Bond) float64 { return float64(b.Streams) })},
	{"mpbond_streams_total", "Streams of the bond so far.", true,
		bondLabels, sampleBonds(func(b api.Bond) float64 { return float64(b.StreamsTotal) })},
	{"mpbond_flows", "Open datagram flows of the bond: one for each UDP socket of an app.", false,
		bondLabels, sampleBonds(func(b api.Bond) float64 { return float64(b.Flows) })},
	{"mpbond_flows_total", "Datagram flows of the bond so far.", true,
		bondLabels, sampleBonds(func(b api.Bond) float64 { return float64(b.FlowsTotal) })},
	{"mpbond_datagrams_dropped_total", "Datagrams that waited too long or found no room, at this end.", true,
		bondLabels, sampleBonds(func(b api.Bond) float64 { return float64(b.DatagramsDropped) })},
	{"mpbond_meta_buffer_bytes", "Bytes accepted from apps and not yet given to a subflow.", false,
		bondLabels, sampleBonds(func(b api.Bond) float64 { return float64(b.MetaBytes) })},
	{"mpbond_reorder_bytes", "Bytes received that wait for earlier ones.", false,
		bondLabels, sampleBonds(func(b api.Bond) float64 { return float64(b.ReorderBytes) })},
	{"mpbond_wasted_bytes_total", "Bytes sent or received more than once, by cause.", true,
		append(bondLabels[:2:2], "cause"), func(s api.Status) (list []sample) {
			for _, b := range s.Bonds {
				for cause, n := range b.WastedBytes {
					list = append(list, sample{float64(n), []string{b.ID, b.Peer, cause}})
				}
			}
			return list
		}},

	{"mpbond_subflow_received_bytes_total", "Bytes received over the subflow, including frame headers.", true,
		subflowLabels, sampleSubflows(func(p api.Subflow) float64 { return float64(p.RxBytes) })},
	{"mpbond_subflow_sent_bytes_total", "Bytes sent over the subflow, including frame headers.", true,
		subflowLabels, sampleSubflows(func(p api.Subflow) float64 { return float64(p.TxBytes) })},
	{"mpbond_subflow_received_bytes_per_second", "Receive rate over the last second.", false,
		subflowLabels, sampleSubflows(func(p api.Subflow) float64 { return float64(p.RxRate) / 8 })},
	{"mpbond_subflow_sent_bytes_per_second", "Send rate over the last second.", false,
		subflowLabels, sampleSubflows(func(p api.Subflow) float64 { return float64(p.TxRate) / 8 })},
	{"mpbond_subflow_throughput_bytes_per_second", "Estimated sending rate of the subflow from this end (Th).", false,
		subflowLabels, sampleSubflows(func(p api.Subflow) float64 { return float64(p.ThroughputBps) / 8 })},
	{"mpbond_subflow_backlog_bytes", "Bytes sent and not yet at the far end (B).", false,
		subflowLabels, sampleSubflows(func(p api.Subflow) float64 { return float64(p.BacklogBytes) })},
	{"mpbond_subflow_pad_seconds", "Predicted delivery time of a byte given to the subflow now (PAD).", false,
		subflowLabels, sampleSubflows(func(p api.Subflow) float64 { return p.PADms / 1000 })},
	{"mpbond_subflow_rtt_seconds", "Smoothed round-trip time of the hop at this end.", false,
		subflowLabels, sampleSubflows(func(p api.Subflow) float64 { return p.SRTTms / 1000 })},
	{"mpbond_subflow_expected_stall_seconds",
		"By how much a forecast handoff delays what is given to the subflow now, on average.", false,
		subflowLabels, sampleSubflows(func(p api.Subflow) float64 { return p.ExpectedStallMs / 1000 })},
	{"mpbond_subflow_silent", "1 while bytes are in flight without progress; else 0.", false,
		subflowLabels, sampleSubflows(func(p api.Subflow) float64 { return boolSampleValue(p.State == api.Silent) })},
	{"mpbond_subflow_udp", "1 while the hop at this end uses UDP; else 0.", false,
		subflowLabels, sampleSubflows(func(p api.Subflow) float64 { return boolSampleValue(p.Transport == "udp") })},
	{"mpbond_subflow_resumed_total", "How often a helped subflow resumed on another pipe after a break.", true,
		subflowLabels, sampleSubflows(func(p api.Subflow) float64 { return float64(p.Resumed) })},
	{"mpbond_subflow_migrated_total",
		"How often a subflow moved without a break: a helped one to another pipe, one over UDP to another address.", true,
		subflowLabels, sampleSubflows(func(p api.Subflow) float64 { return float64(p.Migrated) })},

	{"mpbond_subflow_pbe_capacity_bytes_per_second",
		"Rate available in the mobile cells of the other end, while it reports it (PBE-CC).", false,
		subflowLabels, samplePBEFeedback(func(p api.PBE) float64 { return float64(p.CapacityBps) / 8 })},
	{"mpbond_subflow_pbe_fair_bytes_per_second", "Its fair share of these cells.", false,
		subflowLabels, samplePBEFeedback(func(p api.PBE) float64 { return float64(p.FairBps) / 8 })},
	{"mpbond_subflow_pbe_doubted", "1 while less arrives than the reported rate; else 0.", false,
		subflowLabels, samplePBEFeedback(func(p api.PBE) float64 { return boolSampleValue(p.Doubted) })},
	{"mpbond_cells_receiving",
		"1 while control messages of the mobile cells of a monitored local interface are received, else 0.", false,
		[]string{"interface"}, sampleCells(func(c api.Cells) float64 { return boolSampleValue(c.Receiving) })},
	{"mpbond_cells_capacity_bytes_per_second",
		"Rate available to this device in those cells; 0 while they are not received.", false,
		[]string{"interface"}, sampleCells(func(c api.Cells) float64 { return float64(c.CapacityBps) / 8 })},
	{"mpbond_cells_fair_bytes_per_second", "Its fair share of these cells.", false,
		[]string{"interface"}, sampleCells(func(c api.Cells) float64 { return float64(c.FairBps) / 8 })},

	{"mpbond_cap_bytes",
		"Cap of a link, of all links together, or of another device: " +
			"the nearest or, of used-up ones, the one that lasts longest.", false,
		capLabels, sampleCaps(func(c api.Cap) float64 { return float64(c.CapBytes) })},
	{"mpbond_cap_used_bytes", "Bytes that count against that cap so far.", false,
		capLabels, sampleCaps(func(c api.Cap) float64 { return float64(c.UsedBytes) })},
	{"mpbond_cap_reached", "1 while the cap is used up and nothing is carried; else 0.", false,
		capLabels, sampleCaps(func(c api.Cap) float64 { return boolSampleValue(c.State == "reached") })},

	{"mpbond_fleet_engine_lost",
		"At a server of a fleet: 1 while the fleet's engine does not answer, else 0.", false,
		nil, sampleMember(func(f api.Fleet) float64 { return boolSampleValue(f.EngineLost) })},
	{"mpbond_fleet_age_seconds",
		"At a server of a fleet: age of what it knows of the devices; missing while it knows nothing.", false,
		nil, func(s api.Status) []sample {
			if s.Fleet != nil && s.Fleet.AgeSeconds < 0 {
				return nil
			}
			return sampleMember(func(f api.Fleet) float64 { return f.AgeSeconds })(s)
		}},
	{"mpbond_fleet_devices", "At a server of a fleet: devices that it knows.", false,
		nil, sampleMember(func(f api.Fleet) float64 { return float64(f.Devices) })},
	{"mpbond_fleet_waiting_reports",
		"At a server of a fleet: events and counts of devices that the engine has not taken yet.", false,
		nil, sampleMember(func(f api.Fleet) float64 { return float64(f.Waiting) })},
	{"mpbond_fleet_draining", "At a server of a fleet: 1 while it drains, else 0.", false,
		nil, sampleMember(func(f api.Fleet) float64 { return boolSampleValue(f.Draining) })},
	{"mpbond_fleet_servers",
		"At a server of a fleet: servers by state, running, draining, full, silent or unlisted. Each has one: running " +
			"means without another, full that it runs and takes no new devices, silent that it is on the list and does not " +
			"report, unlisted that it runs and is not on the list.", false,
		[]string{"state"}, sampleServers},
	{"mpbond_fleet_list_left_seconds",
		"At a server or primary of a fleet: time until the list of servers expires; below 0 if it has.", false,
		nil, func(s api.Status) []sample {
			if s.Fleet == nil || s.Fleet.Expires.IsZero() {
				return nil
			}
			return []sample{{time.Until(s.Fleet.Expires).Seconds(), nil}}
		}},

	{"mpbond_helper_relayed_bytes_total", "At a helper: bytes relayed, both directions.", true,
		nil, sampleHelper(func(h api.HelperStatus) float64 { return float64(h.RelayedBytes) })},
	{"mpbond_helper_buffer_bytes", "At a helper: bytes held between HS-path and pipe.", false,
		nil, sampleHelper(func(h api.HelperStatus) float64 { return float64(h.BufferBytes) })},
	{"mpbond_helper_subflows", "At a helper: subflows relayed now.", false,
		nil, sampleHelper(func(h api.HelperStatus) float64 { return float64(h.Subflows) })},
	{"mpbond_onload_open", "At a helper that onloads: 1 while it accepts connections, else 0.", false,
		nil, sampleOnload(func(o api.OnloadStatus) []sample { return []sample{{boolSampleValue(o.Open), nil}} })},
	{"mpbond_onload_today_bytes",
		"At a helper that onloads: bytes carried today, as a provider counts; mpbond_link_bytes has them by device.", false,
		nil, sampleOnload(func(o api.OnloadStatus) []sample { return []sample{{float64(o.CarriedBytes), nil}} })},
	{"mpbond_onload_left_bytes", "At a helper that onloads with an allowance: bytes that are left today.", false,
		nil, sampleOnload(func(o api.OnloadStatus) []sample {
			if !o.Bounded {
				return nil
			}
			return []sample{{float64(o.LeftBytes), nil}}
		})},
	{"mpbond_onload_tunnels", "At a helper that onloads: current connections of a device that has any.", false,
		[]string{"device"}, sampleOnload(func(o api.OnloadStatus) (list []sample) {
			for name, n := range o.ByDevice() {
				list = append(list, sample{float64(n.Count), []string{name}})
			}
			return list
		})},
	{"mpbond_link_share_limit_bytes_per_second",
		"At a helper: rate of the interface that other devices may use in a direction, " +
			"while its owner's traffic limits them.", false,
		[]string{"interface", "direction"}, func(s api.Status) (list []sample) {
			if s.Helper == nil {
				return nil
			}
			for _, l := range s.Helper.LinkShares {
				if l.Limited {
					list = append(list, sample{float64(l.LimitBps) / 8, []string{l.Interface, l.Direction}})
				}
			}
			return list
		}},
}

// Labels.
var (
	bondLabels    = []string{"bond", "peer"}
	subflowLabels = []string{"bond", "peer", "subflow", "device", "kind"}
)

// sampleDevices returns a function that samples f of each other device, labelled by its name.
func sampleDevices(f func(api.Device) float64) func(api.Status) []sample {
	return func(s api.Status) (list []sample) {
		for _, d := range s.Devices {
			if !d.Self {
				list = append(list, sample{f(d), []string{d.Name}})
			}
		}
		return list
	}
}

// sampleFacts omits unknown facts.
func sampleFacts(f func(api.Facts) *float64) func(api.Status) []sample {
	return func(s api.Status) (list []sample) {
		for _, d := range s.Devices {
			if d.Facts == nil {
				continue
			}
			if v := f(d.Facts.Facts); v != nil {
				list = append(list, sample{*v, []string{d.Name}})
			}
		}
		return list
	}
}

func scaleValue(v *float64, by float64) *float64 {
	if v == nil {
		return nil
	}
	n := *v * by
	return &n
}

func optionalBool(v *bool) *float64 {
	if v == nil {
		return nil
	}
	n := boolSampleValue(*v)
	return &n
}

func sampleBonds(f func(api.Bond) float64) func(api.Status) []sample {
	return func(s api.Status) (list []sample) {
		for _, b := range s.Bonds {
			list = append(list, sample{f(b), []string{b.ID, b.Peer}})
		}
		return list
	}
}

// sampleSubflows returns a function that samples f of each subflow that has joined its bond, with
// subflowLabels.
func sampleSubflows(f func(api.Subflow) float64) func(api.Status) []sample {
	return func(s api.Status) (list []sample) {
		for _, b := range s.Bonds {
			for _, p := range b.Subflows {
				if p.ID != 0 {
					list = append(
						list,
						sample{f(p), []string{b.ID, b.Peer, strconv.FormatUint(uint64(p.ID), 10), p.Device, p.Kind}},
					)
				}
			}
		}
		return list
	}
}

// samplePBEFeedback returns a function that samples f of the feedback about cells of each subflow
// that follows it, with subflowLabels.
func samplePBEFeedback(f func(api.PBE) float64) func(api.Status) []sample {
	return func(s api.Status) (list []sample) {
		for _, b := range s.Bonds {
			for _, p := range b.Subflows {
				if p.ID != 0 && p.Hop != nil && p.Hop.PBE != nil && p.Hop.PBE.FollowsFeedback {
					list = append(
						list,
						sample{
							f(*p.Hop.PBE),
							[]string{b.ID, b.Peer, strconv.FormatUint(uint64(p.ID), 10), p.Device, p.Kind},
						},
					)
				}
			}
		}
		return list
	}
}

func sampleCells(f func(api.Cells) float64) func(api.Status) []sample {
	return func(s api.Status) (list []sample) {
		for _, c := range s.Cells {
			list = append(list, sample{f(c), []string{c.Interface}})
		}
		return list
	}
}

func sampleHelper(f func(api.HelperStatus) float64) func(api.Status) []sample {
	return func(s api.Status) []sample {
		if s.Helper == nil {
			return nil
		}
		return []sample{{f(*s.Helper), nil}}
	}
}

func sampleOnload(f func(api.OnloadStatus) []sample) func(api.Status) []sample {
	return func(s api.Status) []sample {
		if s.Onload == nil {
			return nil
		}
		return f(*s.Onload)
	}
}

// sampleMember returns a function that samples f of the fleet at a server.
func sampleMember(f func(api.Fleet) float64) func(api.Status) []sample {
	return func(s api.Status) []sample {
		if s.Fleet == nil || s.Fleet.Engine == "" {
			return nil
		}
		return []sample{{f(*s.Fleet), nil}}
	}
}

// sampleServers counts the servers of a fleet by state. Each server has one state.
func sampleServers(s api.Status) []sample {
	if s.Fleet == nil || s.Fleet.Engine == "" {
		return nil
	}
	var running, draining, full, silent, unlisted float64
	for _, one := range s.Fleet.Servers {
		switch {
		case one.Running == nil || !*one.Running:
			silent++
		case !one.Listed:
			unlisted++
		case one.Draining:
			draining++
		case one.Full:
			full++
		default:
			running++
		}
	}
	return []sample{{running, []string{"running"}}, {draining, []string{"draining"}}, {full, []string{"full"}},
		{silent, []string{"silent"}}, {unlisted, []string{"unlisted"}}}
}

func boolSampleValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// forecastMetric is the median error of past forecasts.
var forecastMetric = metric{
	name: "mpbond_forecast_error_ratio",
	help: "Median error of the last forecasts of answers, relative to the time that they took.",
}

// handoffMetric is the forecast of each mobile link.
var handoffMetric = metric{
	name:   "mpbond_handoff_probability_ratio",
	help:   "Probability that a mobile link of this device changes its cell within 2 s, 0 to 1; 0 if unknown.",
	labels: []string{"interface"},
}

// eventMetric counts the events of the feed.
var eventMetric = metric{
	name:    "mpbond_events_total",
	help:    "Events so far, by kind, as `mpbond events` shows them.",
	counter: true,
	labels:  []string{"kind"},
}
