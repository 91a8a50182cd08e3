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

WARN := -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla
HARDEN := -fstack-protector-strong -D_FORTIFY_SOURCE=2 -fPIE
CFLAGS_release := -O2 -g $(HARDEN)
CFLAGS_test := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all -DPLIMSOLL_FAULTS=1 -DPLIMSOLL_STANDIN=1
# bench: release flags plus the stand-in backend of loadtest/.
CFLAGS_bench := -O2 -g $(HARDEN) -DPLIMSOLL_STANDIN=1
CFLAGS := -std=gnu11 $(WARN) $(CFLAGS_$(VARIANT)) -MMD -MP -D_GNU_SOURCE= -I. -I$(GEN) -DH2O_USE_LIBUV=0 $(PKG_CFLAGS) $(EXTRA_CFLAGS)
LDFLAGS := $(if $(filter test,$(VARIANT)),-fsanitize=address$(comma)undefined,-pie -Wl$(comma)-z$(comma)relro$(comma)-z$(comma)now)
LIBS := -lh2o-evloop $(PKG_LIBS) -lm -lpthread

PROTOS := records/plimsoll.proto backends/backend.proto gateway/control.proto
GEN_C := $(PROTOS:%.proto=$(GEN)/%.pb-c.c)
GEN_H := $(PROTOS:%.proto=$(GEN)/%.pb-c.h)

CORE_SRC := $(wildcard core/*.c)
CONFIG_SRC := $(wildcard config/*.c)
RECORDS_SRC := $(wildcard records/*.c)
BACKENDS_SRC := $(wildcard backends/*.c backends/wasm/*.c) $(if $(filter bench test,$(VARIANT)),$(wildcard loadtest/standin/*.c))
GATEWAY_SRC := $(filter-out gateway/main.c,$(wildcard gateway/*.c))
CLI_SRC := $(filter-out cli/main.c,$(wildcard cli/*.c))

objs = $(patsubst %.c,$(OBJ)/%.o,$(1))
GEN_OBJ := $(patsubst $(GEN)/%.c,$(OBJ)/gen/%.o,$(GEN_C))
# One archive for everything but the mains; the folder test keeps the arrows.
LIB := $(OUT)/libplimsoll.a
LIB_OBJ := $(call objs,$(CORE_SRC) $(CONFIG_SRC) $(RECORDS_SRC) $(BACKENDS_SRC) $(GATEWAY_SRC) $(CLI_SRC)) $(GEN_OBJ)

.PHONY: all help
all: $(OUT)/plimsolld $(OUT)/plimsoll $(OUT)/plimsoll-wasm ## build the daemon, the command and the wasm template

help: ## list the targets
	@grep -hE '^[a-z_-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(GEN)/%.pb-c.c $(GEN)/%.pb-c.h: %.proto
	@mkdir -p $(GEN)
	@protoc-c --c_out=$(GEN) $<

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

UNIT_SRC := $(wildcard tests/unit/test_*.c)
UNIT_BIN := $(UNIT_SRC:tests/unit/%.c=$(OUT)/unit/%)
$(OUT)/unit/%: $(OBJ)/tests/unit/%.o $(LIB)
	@mkdir -p $(dir $@)
	@echo "LD $@"
	@$(CC) $(LDFLAGS) -o $@ $^ $(LIBS) -lcmocka

.PHONY: unit
unit: $(UNIT_BIN)
	@set -e; for t in $(UNIT_BIN); do $$t; done

-include $(shell find $(OBJ) -name '*.d' 2>/dev/null)
