// A plugin of QEMU's TCG by which the CPUs of a LoongArch guest come out to another process: see ../plugin.go, which has
// the other end of the socket. It knows nothing of the ABI; what of it there is to look for comes as arguments.

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

// What is used of version 7 of the plugin API (QEMU 11.1, docs/devel/tcg-plugins.rst), and of GLib, which QEMU has.
#define EXPORT __attribute__((visibility("default")))
enum { READ_WRITE = 2, READ_WRITE_PC = 3 }; // what a callback does with registers
enum { UNEQUAL = 3 };                       // a condition
enum { STORE = 1 };                         // an operation inline

struct bytes {
	uint8_t *data;
	unsigned size;
};
struct array {
	void *data;
	unsigned size;
};
struct descriptor {
	void *handle;
	const char *name, *feature;
	bool read_only;
};
struct entry { // of a scoreboard, which has one for each CPU
	void *board;
	size_t offset;
};
struct info {
	const char *target;
	int oldest, newest;
	bool system;
	int cpus, most;
};
typedef void on_cpu(unsigned cpu, void *data);

struct bytes *g_byte_array_new(void);
struct bytes *g_byte_array_set_size(struct bytes *, unsigned);
struct bytes *g_byte_array_free(struct bytes *, int);
int g_array_free(struct array *, int);
void qemu_plugin_register_vcpu_init_cb(uint64_t id, on_cpu *, void *);
void qemu_plugin_register_vcpu_idle_cb(uint64_t id, on_cpu *, void *);
void qemu_plugin_register_vcpu_resume_cb(uint64_t id, on_cpu *, void *);
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, void (*)(void *block, void *), void *);
void qemu_plugin_register_vcpu_tb_exec_cond_cb(void *block, on_cpu *, int registers, int condition, struct entry, uint64_t, void *);
void qemu_plugin_register_vcpu_insn_exec_cb(void *instruction, on_cpu *, int registers, void *);
void qemu_plugin_register_vcpu_insn_exec_cond_cb(void *instruction, on_cpu *, int registers, int condition, struct entry, uint64_t, void *);
void qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(void *instruction, int operation, struct entry, uint64_t);
void *qemu_plugin_scoreboard_new(size_t);
uint64_t qemu_plugin_u64_get(struct entry, unsigned cpu);
void qemu_plugin_u64_set(struct entry, unsigned cpu, uint64_t);
size_t qemu_plugin_tb_n_insns(const void *block);
uint64_t qemu_plugin_tb_vaddr(const void *block);
void *qemu_plugin_tb_get_insn(const void *block, size_t);
size_t qemu_plugin_insn_data(const void *instruction, void *, size_t);
uint64_t qemu_plugin_insn_vaddr(const void *instruction);
struct array *qemu_plugin_get_registers(void);
bool qemu_plugin_read_register(void *handle, struct bytes *);
bool qemu_plugin_write_register(void *handle, struct bytes *);
void qemu_plugin_set_pc(uint64_t) __attribute__((noreturn));

EXPORT int qemu_plugin_version = 7;

// The instructions, as in ../sites.go.
enum { LENGTH = 4 };
static bool is_hvcl(uint32_t w) { return (w & 0xffff8000) == 0x002b8000; }
static bool is_cpucfg(uint32_t w) { return (w & 0xfffffc00) == 0x00006c00; }
static bool is_iocsrrd(uint32_t w) { return (w & 0xfffffc00) == 0x06480800; }
static bool is_idle(uint32_t w) { return (w & 0xffff8000) == 0x06488000; }
static int from(uint32_t w) { return w >> 5 & 31; }

// What goes over the socket, in this machine's byte order.
enum { MOST = 64, REGISTERS = 32, ARGUMENTS = 6, A0 = 4 };
enum what { GO, STOP, ANSWER };
struct command {
	uint64_t what;
	uint64_t turn; // of GO and STOP: a STOP of another turn than the last GO's comes too late
	uint64_t held; // of GO: the CPUs that stand still, bits
	uint64_t cpu;  // of ANSWER
	uint64_t to, value;
	uint64_t arguments[ARGUMENTS];
};
struct stop {
	uint64_t cpu; // that came out, or MOST
	uint64_t instruction, pc, after, read;
	uint64_t registers[REGISTERS];
	uint64_t asleep; // the CPUs that are, bits
	uint64_t pcs[MOST];
};
_Static_assert(sizeof(struct command) == 12 * 8 && sizeof(struct stop) == (5 + REGISTERS + 1 + MOST) * 8, "as the other end has them");

// Arguments.
static const char *path = "";
static uint64_t first_word, last_word, iocsr, text, text_end;
static const struct {
	const char *name;
	uint64_t *value;
} numbers[] = {
	{"first-word=", &first_word}, {"last-word=", &last_word}, {"iocsr=", &iocsr}, {"text=", &text}, {"text-end=", &text_end},
};

struct site {
	uint64_t pc;
	uint32_t instruction;
};

// All of it is used under the lock but handles, site and read, which are the CPU's thread's.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct cpu {
	void *handles[REGISTERS];
	const struct site *site; // the last one that it came to
	uint64_t read;           // what was in the register there that the instruction reads
	bool after;              // the machine does that instruction, and the CPU comes out after it
	bool asleep;             // waits for an interrupt
	bool still;              // stands before an instruction
	bool out, told;          // came out; and the other end knows
	struct stop stop;
	struct command answer;
} cpus[MOST];
static unsigned count, next;
static int control = -1;              // the socket
static bool gone;                     // the other end is
static bool stopping = true, stopped = true; // all are to stand still; all do
static uint64_t held, turn;
// By CPU: whether it has to look for more than its next instruction, and where it stands.
static struct entry flag, place;

static void set_flag(unsigned cpu)
{
	bool stands = stopping || held >> cpu & 1;
	qemu_plugin_u64_set(flag, cpu, !gone && (stands || cpus[cpu].after));
}

static void set_flags(void)
{
	for (unsigned i = 0; i < count; i++)
		set_flag(i);
}

// report tells that all CPUs stand still, once they do.
static void report(void)
{
	struct stop none = {.cpu = MOST}, *s = &none;

	if (!stopping || stopped || gone)
		return;
	for (unsigned i = 0; i < count; i++)
		if (!cpus[i].asleep && !cpus[i].still)
			return;
	for (unsigned i = 0; i < count; i++) {
		unsigned cpu = (next + i) % count;
		struct cpu *c = &cpus[cpu];
		if (c->out && !c->told && !(held >> cpu & 1)) {
			c->told = true;
			s = &c->stop;
			next = cpu + 1;
			break;
		}
	}
	s->asleep = 0;
	for (unsigned i = 0; i < count; i++) {
		s->asleep |= (uint64_t)cpus[i].asleep << i;
		s->pcs[i] = qemu_plugin_u64_get(place, i);
	}
	stopped = true;
	if (send(control, s, sizeof *s, MSG_NOSIGNAL) != sizeof *s)
		shutdown(control, SHUT_RDWR); // serve finds out
}

// stand has a CPU stand still for as long as it has to.
static void stand(unsigned cpu, uint64_t pc)
{
	struct cpu *c = &cpus[cpu];

	qemu_plugin_u64_set(place, cpu, pc);
	c->still = true;
	report();
	while (!gone && (c->out || stopping || held >> cpu & 1))
		pthread_cond_wait(&changed, &lock);
	c->still = false;
	set_flag(cpu);
}

static uint64_t get(const struct cpu *c, int number)
{
	uint64_t value = 0;
	struct bytes *b = g_byte_array_new();

	if (number && qemu_plugin_read_register(c->handles[number], b) && b->size == sizeof value)
		memcpy(&value, b->data, sizeof value);
	g_byte_array_free(b, true);
	return value;
}

static void set(const struct cpu *c, int number, uint64_t value)
{
	struct bytes *b = g_byte_array_set_size(g_byte_array_new(), sizeof value);

	memcpy(b->data, &value, sizeof value);
	if (number)
		qemu_plugin_write_register(c->handles[number], b);
	g_byte_array_free(b, true);
}

// come_out has a CPU come out to the other end, and stand still at an address until it is told to go on.
static void come_out(unsigned cpu, uint64_t at, bool after)
{
	struct cpu *c = &cpus[cpu];

	c->stop = (struct stop){.cpu = cpu, .instruction = c->site->instruction, .pc = c->site->pc, .after = after, .read = c->read};
	for (int i = 0; i < REGISTERS; i++)
		c->stop.registers[i] = get(c, i);
	c->out = true;
	c->told = false;
	stopping = true;
	set_flags();
	stand(cpu, at);
}

// at_site comes before an instruction that a CPU may leave the guest by.
static void at_site(unsigned cpu, void *data)
{
	const struct site *s = data;
	struct cpu *c = &cpus[cpu];
	uint32_t w = s->instruction;
	uint64_t read = is_cpucfg(w) || is_iocsrrd(w) ? (uint32_t)get(c, from(w)) : 0;

	if (is_cpucfg(w) && (read < first_word || read > last_word) || is_iocsrrd(w) && read != iocsr)
		return;
	c->site = s;
	c->read = read;
	pthread_mutex_lock(&lock);
	if (is_hvcl(w) || is_idle(w))
		come_out(cpu, s->pc, false);
	bool left = gone;
	c->after = !is_hvcl(w) && !left;
	set_flag(cpu);
	pthread_mutex_unlock(&lock);
	if (!is_hvcl(w) || left)
		return;
	for (int i = 0; i < ARGUMENTS; i++)
		set(c, A0 + i, c->answer.arguments[i]);
	qemu_plugin_set_pc(s->pc + LENGTH);
}

// flagged comes before an instruction of a CPU that has to look for more.
static void flagged(unsigned cpu, void *data)
{
	struct cpu *c = &cpus[cpu];
	uint64_t at = (uintptr_t)data;
	bool after;

	pthread_mutex_lock(&lock);
	after = c->after && !gone;
	c->after = false;
	if (after)
		come_out(cpu, at, true);
	else
		stand(cpu, at);
	after = after && !gone;
	pthread_mutex_unlock(&lock);
	if (after)
		set(c, c->answer.to, c->answer.value);
}

static void translated(void *block, void *data)
{
	size_t n = qemu_plugin_tb_n_insns(block);
	bool behind = false; // a site, in the same block

	qemu_plugin_register_vcpu_tb_exec_cond_cb(block, flagged, READ_WRITE, UNEQUAL, flag, 0, (void *)(uintptr_t)qemu_plugin_tb_vaddr(block));
	for (size_t i = 0; i < n; i++) {
		void *instruction = qemu_plugin_tb_get_insn(block, i);
		struct site here = {.pc = qemu_plugin_insn_vaddr(instruction)}, *s;

		if (behind)
			qemu_plugin_register_vcpu_insn_exec_cond_cb(instruction, flagged, READ_WRITE, UNEQUAL, flag, 0, (void *)(uintptr_t)here.pc);
		qemu_plugin_insn_data(instruction, &here.instruction, sizeof here.instruction);
		uint32_t w = here.instruction;
		// A process has addresses without the highest bit, and the kernel's waits are its own.
		bool kernel = here.pc >= text && here.pc < text_end;
		behind = here.pc >> 63 && (is_hvcl(w) || is_cpucfg(w) || is_iocsrrd(w) || is_idle(w) && !kernel);
		if (behind && (s = malloc(sizeof *s))) {
			*s = here;
			qemu_plugin_register_vcpu_insn_exec_cb(instruction, at_site, READ_WRITE_PC, s);
		}
		if (is_idle(w)) // where the CPU stands while it is asleep
			qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(instruction, STORE, place, here.pc + LENGTH);
	}
}

static void sleeps(unsigned cpu, void *data)
{
	pthread_mutex_lock(&lock);
	cpus[cpu].asleep = true;
	report();
	pthread_mutex_unlock(&lock);
}

static void wakes(unsigned cpu, void *data)
{
	pthread_mutex_lock(&lock);
	cpus[cpu].asleep = false;
	pthread_mutex_unlock(&lock);
}

static void appears(unsigned cpu, void *data)
{
	struct array *all = qemu_plugin_get_registers();
	struct descriptor *d = all->data;
	int number, end;

	for (unsigned i = 0; i < all->size; i++)
		if (sscanf(d[i].name, "r%d%n", &number, &end) == 1 && !d[i].name[end] && number >= 0 && number < REGISTERS)
			cpus[cpu].handles[number] = d[i].handle;
	g_array_free(all, true);
}

static void obey(const struct command *c)
{
	switch (c->what) {
	case GO:
		held = c->held;
		turn = c->turn;
		stopping = stopped = false;
		for (unsigned i = 0; i < count; i++) // those that came out while another one did
			stopping = stopping || cpus[i].out && !cpus[i].told && !(held >> i & 1);
		break;
	case STOP:
		stopping = stopping || c->turn == turn;
		break;
	case ANSWER:
		if (c->cpu < count) {
			cpus[c->cpu].answer = *c;
			cpus[c->cpu].out = false;
		}
	}
	set_flags();
	report();
	pthread_cond_broadcast(&changed);
}

// serve does what the other end wants. When that goes the guest goes on without it.
static void *serve(void *data)
{
	int listener = (int)(intptr_t)data;
	struct command c;

	control = accept(listener, NULL, NULL);
	close(listener);
	while (recv(control, &c, sizeof c, MSG_WAITALL) == sizeof c) {
		pthread_mutex_lock(&lock);
		obey(&c);
		pthread_mutex_unlock(&lock);
	}
	pthread_mutex_lock(&lock);
	gone = true;
	set_flags();
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
	return NULL;
}

EXPORT int qemu_plugin_install(uint64_t id, const struct info *info, int argc, char **argv)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	sigset_t all, before;
	pthread_t thread;
	int listener;

	for (int i = 0; i < argc; i++) {
		if (!strncmp(argv[i], "socket=", 7))
			path = argv[i] + 7;
		for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++)
			if (!strncmp(argv[i], numbers[n].name, strlen(numbers[n].name)))
				*numbers[n].value = strtoull(argv[i] + strlen(numbers[n].name), NULL, 0);
	}
	count = info->cpus;
	if (info->most > MOST || strlen(path) >= sizeof address.sun_path) {
		fprintf(stderr, "plugin: %d CPUs, a socket %s: there is room for %d, and %zu characters\n", info->most, path, MOST, sizeof address.sun_path - 1);
		return -1;
	}
	flag.board = qemu_plugin_scoreboard_new(2 * sizeof(uint64_t));
	place = (struct entry){flag.board, sizeof(uint64_t)};
	strcpy(address.sun_path, path);
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 1)) {
		perror(path);
		return -1;
	}
	qemu_plugin_register_vcpu_init_cb(id, appears, NULL);
	qemu_plugin_register_vcpu_idle_cb(id, sleeps, NULL);
	qemu_plugin_register_vcpu_resume_cb(id, wakes, NULL);
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated, NULL);
	sigfillset(&all); // signals are for QEMU's own threads
	pthread_sigmask(SIG_BLOCK, &all, &before);
	listener = pthread_create(&thread, NULL, serve, (void *)(intptr_t)listener);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return listener;
}
