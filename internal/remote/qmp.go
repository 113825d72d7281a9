package remote

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"slices"
)

// QMP is a connection to QEMU's monitor (docs/interop/qmp-spec.rst, QEMU 11.1). Its methods
// may not be called concurrently.
type QMP struct {
	conn net.Conn
	dec  *json.Decoder
}

// CPU is what the monitor tells of a CPU.
type CPU struct {
	Index int `json:"cpu-index"`
	// Path is the CPU's in QEMU's object model.
	Path string `json:"qom-path"`
	// Props are where the CPU is.
	Props struct {
		Socket int `json:"socket-id"`
		Core   int `json:"core-id"`
		Thread int `json:"thread-id"`
	} `json:"props"`
}

// NewQMP begins to speak over a connection: it hears the greeting and leaves negotiation.
func NewQMP(conn net.Conn) (*QMP, error) {
	q := &QMP{conn: conn, dec: json.NewDecoder(bufio.NewReader(conn))}
	var greeting struct {
		QMP json.RawMessage `json:"QMP"`
	}
	if err := q.dec.Decode(&greeting); err != nil {
		return nil, fmt.Errorf("qmp: greeting: %w", err)
	}
	if greeting.QMP == nil {
		return nil, fmt.Errorf("qmp: what answers does not greet as a monitor does")
	}
	return q, q.execute("qmp_capabilities", nil, nil)
}

// Close ends the connection.
func (q *QMP) Close() error { return q.conn.Close() }

// execute has a command done and stores what it returns, if result is not nil.
func (q *QMP) execute(command string, arguments, result any) error {
	request := map[string]any{"execute": command}
	if arguments != nil {
		request["arguments"] = arguments
	}
	if err := json.NewEncoder(q.conn).Encode(request); err != nil {
		return fmt.Errorf("qmp: %s: %w", command, err)
	}
	for {
		var answer struct {
			Event  string          `json:"event"`
			Return json.RawMessage `json:"return"`
			Error  *struct {
				Desc string `json:"desc"`
			} `json:"error"`
		}
		if err := q.dec.Decode(&answer); err != nil {
			return fmt.Errorf("qmp: %s: %w", command, err)
		}
		switch {
		case answer.Event != "":
			continue
		case answer.Error != nil:
			return &Refused{command, answer.Error.Desc}
		case result == nil:
			return nil
		}
		if err := json.Unmarshal(answer.Return, result); err != nil {
			return fmt.Errorf("qmp: %s: %w", command, err)
		}
		return nil
	}
}

// Continue lets the machine's CPUs run that was started to stand still.
func (q *QMP) Continue() error { return q.execute("cont", nil, nil) }

// Await waits for an event. No command may come after it.
func (q *QMP) Await(event string) error {
	for {
		var answer struct {
			Event string `json:"event"`
		}
		switch err := q.dec.Decode(&answer); {
		case err != nil:
			return fmt.Errorf("qmp: wait for %s: %w", event, err)
		case answer.Event == event:
			return nil
		}
	}
}

// CPUs lists the machine's CPUs by their index.
func (q *QMP) CPUs() ([]CPU, error) {
	var cpus []CPU
	if err := q.execute("query-cpus-fast", nil, &cpus); err != nil {
		return nil, err
	}
	slices.SortFunc(cpus, func(a, b CPU) int { return a.Index - b.Index })
	return cpus, nil
}

// Monitor has a command of the human monitor done about a CPU, and returns what it prints.
func (q *QMP) Monitor(cpu int, command string) (string, error) {
	var text string
	err := q.execute("human-monitor-command", map[string]any{"command-line": command, "cpu-index": cpu}, &text)
	return text, err
}
