# plimsoll gateway. `make help` lists the targets.
SHELL := /bin/bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := all

comma := ,

# VARIANT picks the flavour: release (default), or test: ASan, UBSan and the fault points.
VARIANT ?= release
OUT := $(if $(filter release,$(VARIANT)),build,build/$(VARIANT))
OBJ := $(OUT)/obj
GEN := build/gen

CC ?= gcc
PKGS := libssl libcrypto libcurl libnghttp2 libprotobuf-c jansson libsodium hiredis libseccomp zlib
# Fetched once per make run; empty on a machine whose packages are not there yet, where `make setup` comes first.
PKG_CFLAGS := $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
PKG_LIBS := $(shell pkg-config --libs $(PKGS) 2>/dev/null)

# Texts are cut at their limits by snprintf on purpose, so gcc notes of where it may happen are off; libseccomp's macros leave fields out.
WARN := -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla $(if $(findstring clang,$(CC)),-Wno-missing-field-initializers,-Wno-format-truncation)
HARDEN := -fstack-protector-strong -D_FORTIFY_SOURCE=2 -fPIE
CFLAGS_release := -O2 -g $(HARDEN)
CFLAGS_test := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all -DPLIMSOLL_FAULTS=1 -DPLIMSOLL_STANDIN=1
CFLAGS_fuzz := -O1 -g -fno-omit-frame-pointer -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -DPLIMSOLL_FAULTS=1
# bench: release flags plus the stand-in backend of loadtest/.
CFLAGS_bench := -O2 -g $(HARDEN) -DPLIMSOLL_STANDIN=1
CFLAGS := -std=gnu11 $(WARN) $(CFLAGS_$(VARIANT)) -MMD -MP -D_GNU_SOURCE= -I. -I$(GEN) -DH2O_USE_LIBUV=0 $(PKG_CFLAGS) $(EXTRA_CFLAGS)
LDFLAGS := $(if $(filter test fuzz,$(VARIANT)),-fsanitize=address$(comma)undefined,-pie -Wl$(comma)-z$(comma)relro$(comma)-z$(comma)now)
LIBS := -lh2o-evloop $(PKG_LIBS) -lm -lpthread

PROTOS := records/plimsoll.proto records/spool.proto backends/backend.proto backends/openshell/openshell.proto gateway/control.proto
GEN_C := $(PROTOS:%.proto=$(GEN)/%.pb-c.c)
GEN_H := $(PROTOS:%.proto=$(GEN)/%.pb-c.h)

CORE_SRC := $(wildcard core/*.c)
CONFIG_SRC := $(wildcard config/*.c)
RECORDS_SRC := $(wildcard records/*.c)
BACKENDS_SRC := $(wildcard backends/*.c backends/wasm/*.c backends/guest/*.c backends/docker/*.c backends/cloud/*.c backends/e2b/*.c backends/dockercloud/*.c backends/openshell/*.c) $(if $(filter bench test,$(VARIANT)),$(wildcard loadtest/standin/*.c))
GATEWAY_SRC := $(filter-out gateway/main.c,$(wildcard gateway/*.c))
CLI_SRC := $(filter-out cli/main.c,$(wildcard cli/*.c))

objs = $(patsubst %.c,$(OBJ)/%.o,$(1))
GEN_OBJ := $(patsubst $(GEN)/%.c,$(OBJ)/gen/%.o,$(GEN_C))
# One archive for everything but the mains; the folder test keeps the arrows.
LIB := $(OUT)/libplimsoll.a
LIB_OBJ := $(call objs,$(CORE_SRC) $(CONFIG_SRC) $(RECORDS_SRC) $(BACKENDS_SRC) $(GATEWAY_SRC) $(CLI_SRC)) $(GEN_OBJ)

.PHONY: all help
all: $(OUT)/plimsolld $(OUT)/plimsoll $(OUT)/plimsoll-wasm ## build the daemon, the command and the wasm template
	@:

help: ## list the targets
	@grep -hE '^[a-z_-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(GEN)/%.pb-c.c $(GEN)/%.pb-c.h: %.proto
	@mkdir -p $(GEN)
	@protoc-c --c_out=$(GEN) $<

# made by a pattern, yet not to be deleted as intermediate
.SECONDARY: $(GEN_C) $(GEN_H)

$(OBJ)/gen/%.o: $(GEN)/%.c | $(GEN_H)
	@mkdir -p $(dir $@)
	@echo "CC $<"
	@$(CC) $(CFLAGS) -c -o $@ $<

$(OBJ)/%.o: %.c | $(GEN_H)
	@mkdir -p $(dir $@)
	@echo "CC $<"
	@$(CC) $(CFLAGS) -c -o $@ $<

$(LIB): $(LIB_OBJ)
	@rm -f $@
	@ar rcs $@ $^

$(OUT)/plimsolld: $(OBJ)/gateway/main.o $(LIB)
	@echo "LD $@"
	@$(CC) $(LDFLAGS) -o $@ $^ $(LIBS)

$(OUT)/plimsoll: $(OBJ)/cli/main.o $(LIB)
	@echo "LD $@"
	@$(CC) $(LDFLAGS) -o $@ $^ $(LIBS)

include backends/wasm/template/build.mk
include $(wildcard backends/guest/runner/build.mk backends/guest/images/build.mk backends/docker/build.mk)

# --- everything a user types ---

JOBS ?= $(shell nproc)
CHAOS_JOBS ?= 6
SUB := $(MAKE) --no-print-directory -j$(JOBS)
PREFIX ?= /usr/local

.PHONY: setup run demo-docker serve test bench fuzz chaos soak live lint docs install uninstall clean

setup: ## install the packages building and running need
	@packages/install packages/build.txt

run: setup ## set up, build, and show the gateway at work
	@$(SUB) all
	@build/plimsoll demo

demo-docker: setup ## show the Docker and gVisor walls; starts an Engine of its own when none runs
	@packages/install packages/images.txt $(if $(wildcard /var/run/docker.sock),,packages/docker.txt)
	@$(SUB) all
	@build/plimsoll demo --docker

serve: setup ## set up, build, and serve on this machine with a token of its own
	@$(SUB) all
	@./serve.sh

test: setup ## set up, build and run every test
	@packages/install packages/test.txt packages/docker.txt packages/images.txt
	@$(SUB) VARIANT=test all unit-binaries
	@$(SUB) VARIANT=bench all
	@$(SUB) venv sdks
	@build/venv/bin/python tests/run.py

bench: setup ## measure: ratios taken in one run
	@packages/install packages/test.txt packages/docker.txt packages/images.txt
	@$(SUB) all
	@$(SUB) VARIANT=bench all records-bench
	@$(SUB) venv
	@build/venv/bin/python loadtest/bench.py

fuzz: setup ## fuzz every parser for FUZZ_SECONDS each (default 60)
	@packages/install packages/test.txt
	@$(SUB) VARIANT=fuzz CC=clang-14 fuzz-binaries
	@FUZZ_SECONDS=$${FUZZ_SECONDS:-60} python3 tests/run.py fuzz

TRIALS ?= 1000
SEED ?= 1
chaos: setup ## kill parts of the gateway under runs, TRIALS times (default 1000), and check what must hold
	@packages/install packages/test.txt
	@$(SUB) VARIANT=test all
	@$(SUB) venv
	@build/venv/bin/python tests/chaos/chaos.py --trials $(TRIALS) --seed $(SEED) --jobs $(CHAOS_JOBS)

RUNS ?= 2000
BACKEND ?= all
soak: setup ## RUNS runs (default 2000) through each cloud's stand-in, or BACKEND's, with faults in its calls; every verdict is checked
	@packages/install packages/test.txt
	@$(SUB) VARIANT=bench all
	@$(SUB) venv
	@PLIMSOLL_BUILD=build/bench build/venv/bin/python tests/soak/soak.py --backend $(BACKEND) --runs $(RUNS) --seed $(SEED)

live: setup ## the conformance suite against the real service: BACKEND=e2b|dockercloud|openshell LIVE=1 (docs/live-tests.md); costs money
	@packages/install packages/test.txt
	@$(SUB) all
	@$(SUB) venv
	@PLIMSOLL_BUILD=build build/venv/bin/python tests/live/live.py --backend $(BACKEND)

lint: ## format and static checks
	@packages/install packages/test.txt
	@python3 tests/run.py lint

docs: $(OUT)/configuration-md ## regenerate the pages that come from tables
	@$(OUT)/configuration-md > docs/configuration.md

install: setup ## build, and install the programs under PREFIX (default /usr/local), DESTDIR honoured
	@$(SUB) all
	install -D -m 0755 build/plimsolld $(DESTDIR)$(PREFIX)/bin/plimsolld
	install -D -m 0755 build/plimsoll $(DESTDIR)$(PREFIX)/bin/plimsoll
	install -D -m 0755 build/plimsoll-wasm $(DESTDIR)$(PREFIX)/bin/plimsoll-wasm
	sed 's|/usr/local/|$(PREFIX)/|' config/plimsolld.service | install -D -m 0644 /dev/stdin $(DESTDIR)$(PREFIX)/lib/systemd/system/plimsolld.service

uninstall: ## remove what install put there
	rm -f $(DESTDIR)$(PREFIX)/bin/plimsolld $(DESTDIR)$(PREFIX)/bin/plimsoll $(DESTDIR)$(PREFIX)/bin/plimsoll-wasm \
		$(DESTDIR)$(PREFIX)/lib/systemd/system/plimsolld.service

clean: ## remove everything built
	rm -rf build

# --- tests' own programs ---

UNIT_SRC := $(wildcard tests/unit/test_*.c)
UNIT_BIN := $(UNIT_SRC:tests/unit/%.c=$(OUT)/unit/%)
$(OUT)/unit/%: $(OBJ)/tests/unit/%.o $(LIB)
	@mkdir -p $(dir $@)
	@echo "LD $@"
	@$(CC) $(LDFLAGS) -o $@ $^ $(LIBS) -lcmocka

FUZZ_SRC := $(wildcard tests/fuzz/fuzz_*.c)
FUZZ_BIN := $(FUZZ_SRC:tests/fuzz/%.c=$(OUT)/fuzz/%)
$(OUT)/fuzz/%: $(OBJ)/tests/fuzz/%.o $(LIB)
	@mkdir -p $(dir $@)
	@echo "LD $@"
	@$(CC) $(LDFLAGS) -fsanitize=fuzzer -o $@ $^ $(LIBS)

$(OUT)/configuration-md: $(OBJ)/config/gen/configuration_md.o $(LIB)
	@$(CC) $(LDFLAGS) -o $@ $^ $(LIBS)

$(OUT)/records_bench: $(OBJ)/loadtest/records_bench.o $(LIB)
	@$(CC) $(LDFLAGS) -o $@ $^ $(LIBS)

$(OUT)/load: $(OBJ)/loadtest/load.o $(LIB)
	@$(CC) $(LDFLAGS) -o $@ $^ $(LIBS)

.PHONY: unit-binaries unit fuzz-binaries records-bench venv sdks
unit-binaries: $(UNIT_BIN)
unit: $(UNIT_BIN) ## run the unit tests of VARIANT
	@set -e; for t in $(UNIT_BIN); do $$t; done
fuzz-binaries: $(FUZZ_BIN)
records-bench: $(OUT)/records_bench $(if $(wildcard loadtest/load.c),$(OUT)/load)

venv: build/venv/.done
build/venv/.done: tests/requirements.txt
	@python3 -m venv build/venv
	@build/venv/bin/pip install --quiet --disable-pip-version-check -r tests/requirements.txt
	@touch $@

# a provider's official JavaScript client, which judges its stand-in
sdks: build/npm/.done
build/npm/.done: tests/standins/e2b/sdk/package.json
	@mkdir -p build/npm
	@cp $< build/npm/
	@cd build/npm && npm install --silent --no-audit --no-fund --ignore-scripts --no-package-lock
	@touch $@

-include $(shell find $(OBJ) -name '*.d' 2>/dev/null)
