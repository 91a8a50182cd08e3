# The program that is PID 1 in every guest: static, one for all variants, never with a sanitizer. The guest images copy it.
RUNNER_OUT := build/guest
RUNNER := $(RUNNER_OUT)/runner
RUNNER_SRC := backends/guest/frame.c backends/guest/job.c $(wildcard backends/guest/runner/*.c)
RUNNER_OBJ := $(RUNNER_SRC:%.c=$(RUNNER_OUT)/obj/%.o)
RUNNER_CFLAGS := -std=gnu11 $(WARN) -Os -g -fno-pie -ffunction-sections -fdata-sections -fstack-protector-strong -D_FORTIFY_SOURCE=2 \
	-D_GNU_SOURCE= -I. -MMD -MP $(shell pkg-config --cflags libsodium 2>/dev/null)
RUNNER_SODIUM := $(shell pkg-config --variable=libdir libsodium 2>/dev/null)/libsodium.a
RUNNER_BYTES_MAX := 1048576

all: $(RUNNER)

$(RUNNER_OUT)/obj/%.o: %.c
	@mkdir -p $(dir $@)
	@echo "CC $< (runner)"
	@$(CC) $(RUNNER_CFLAGS) -c -o $@ $<

# under 1 MiB: it is in every image, and read on every start of a guest
$(RUNNER): $(RUNNER_OBJ)
	@echo "LD $@"
	@$(CC) -static -no-pie -s -Wl,--gc-sections -Wl,-z,relro -Wl,-z,noexecstack -o $@ $(RUNNER_OBJ) $(RUNNER_SODIUM)
	@test $$(stat -c %s $@) -lt $(RUNNER_BYTES_MAX) || { echo "$@ is $$(stat -c %s $@) bytes, the limit is $(RUNNER_BYTES_MAX)"; exit 1; }

-include $(RUNNER_OBJ:.o=.d)
