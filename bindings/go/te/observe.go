// SPDX-License-Identifier: Apache-2.0

package te

// #include <te.h>
import "C"

// LogLevel is the least weight that a log line must have to be written.
type LogLevel int

// The levels of te.h.
const (
	LogTrace LogLevel = C.TE_LOG_TRACE
	LogDebug LogLevel = C.TE_LOG_DEBUG
	LogInfo  LogLevel = C.TE_LOG_INFO
	LogWarn  LogLevel = C.TE_LOG_WARN
	LogError LogLevel = C.TE_LOG_ERROR
	LogOff   LogLevel = C.TE_LOG_OFF
)

// SetLogLevel drops log lines below that level, in the whole process. At first it is LogWarn, or
// what MC_LOG_LEVEL says.
func SetLogLevel(level LogLevel) { C.te_log_set_level(C.enum_te_log_level(level)) }

// Stats are counters since New; struct te_stats in te.h says what each counts.
type Stats struct {
	RequestsSubmitted, RequestsCompleted, RequestsFailed          uint64
	BytesRead, BytesWritten                                       uint64
	ServedRequests, ServedBytesOut, ServedBytesIn, ServedRejected uint64
	Retries, Reconnects, Refreshes                                uint64
	Connections, Regions, SegmentsOpen                            uint64
	NotificationsSent, NotificationsReceived                      uint64
	MetadataFailures                                              uint64
	MetadataDown                                                  bool
}

// Stats reads the counters.
func (e *Engine) Stats() (Stats, error) {
	c := C.struct_te_stats{size: C.sizeof_struct_te_stats}
	if err := e.call(func() C.int { return C.te_stats(e.c, &c) }); err != nil {
		return Stats{}, err
	}
	return Stats{
		RequestsSubmitted:     uint64(c.requests_submitted),
		RequestsCompleted:     uint64(c.requests_completed),
		RequestsFailed:        uint64(c.requests_failed),
		BytesRead:             uint64(c.bytes_read),
		BytesWritten:          uint64(c.bytes_written),
		ServedRequests:        uint64(c.served_requests),
		ServedBytesOut:        uint64(c.served_bytes_out),
		ServedBytesIn:         uint64(c.served_bytes_in),
		ServedRejected:        uint64(c.served_rejected),
		Retries:               uint64(c.retries),
		Reconnects:            uint64(c.reconnects),
		Refreshes:             uint64(c.refreshes),
		Connections:           uint64(c.connections),
		Regions:               uint64(c.regions),
		SegmentsOpen:          uint64(c.segments_open),
		NotificationsSent:     uint64(c.notifications_sent),
		NotificationsReceived: uint64(c.notifications_received),
		MetadataFailures:      uint64(c.metadata_failures),
		MetadataDown:          c.metadata_down != 0,
	}, nil
}

// MetricsText are the metrics as Prometheus scrapes them; docs/metrics.md lists them.
func (e *Engine) MetricsText() (string, error) {
	return e.text(func(buf *C.char, n C.size_t) C.int { return C.te_stats_text(e.c, buf, n) })
}

// Topology is the NIC priority matrix as JSON: {"cpu:0":[[preferred],[others]], ...}.
func (e *Engine) Topology() (string, error) {
	return e.text(func(buf *C.char, n C.size_t) C.int { return C.te_topology_json(e.c, buf, n) })
}

// Links are the NICs and the topology as JSON; te_links in te.h says what is in it.
func (e *Engine) Links() (string, error) {
	return e.text(func(buf *C.char, n C.size_t) C.int { return C.te_links(e.c, 1, buf, n) })
}
