// Package process starts programs that leave nothing running behind.
package process

import (
	"context"
	"os/exec"
	"time"
)

// Command makes a command that ends when ctx does, with all that it started; on Linux it
// ends with this process, too, however that ends. release must be called when the command
// is over.
func Command(ctx context.Context, name string, args ...string) (cmd *exec.Cmd, release func()) {
	cmd = exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = 5 * time.Second // for what left the group and holds the pipes
	return cmd, group(cmd)
}
