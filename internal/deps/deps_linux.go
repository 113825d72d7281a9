package deps

import (
	_ "github.com/hugelgupf/vmtest/guest"
	_ "github.com/hugelgupf/vmtest/qemu"
	_ "github.com/hugelgupf/vmtest/qemu/qevent"
	_ "github.com/klauspost/compress/zstd"
	_ "github.com/stretchr/testify/assert"
	_ "github.com/stretchr/testify/require"
	_ "github.com/u-root/mkuimage/cpio"
	_ "github.com/u-root/u-root/pkg/kmodule"
	_ "github.com/u-root/u-root/pkg/libinit"
	_ "github.com/ulikunitz/xz"
	_ "golang.org/x/arch/x86/x86asm"
	_ "golang.org/x/sync/errgroup"
	_ "golang.org/x/sys/unix"
	_ "golang.org/x/term"
)
