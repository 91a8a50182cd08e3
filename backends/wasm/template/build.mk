# The template of the wasm wall: its engine is fetched once, checked against the pinned hash, translated to C and compiled once for
# all variants, never with a sanitizer. ENGINE.md records what the engine is.
ENGINE_PACKAGE := quickjs-wasi
ENGINE_VERSION := 3.7.0
ENGINE_SHA256 := $(shell cat backends/wasm/template/engine.sha256)
ENGINE_PARTS := 0 1 2 3 4 5
ENGINE_FETCH := build/fetch
ENGINE_TAR := $(ENGINE_FETCH)/$(ENGINE_PACKAGE)-$(ENGINE_VERSION).tgz
ENGINE_OUT := build/wasm
ENGINE_OBJ := $(ENGINE_PARTS:%=$(ENGINE_OUT)/engine-%.o) $(ENGINE_OUT)/wasm-rt-impl.o
# Debian's wabt has the runtime of the translated code as C source too.
WABT_RUNTIME ?= /usr/share/wabt/wasm2c
ENGINE_CFLAGS := -std=gnu11 -w -O2 -fPIE -I$(ENGINE_OUT)

TEMPLATE_SRC := $(wildcard backends/wasm/template/*.c)
TEMPLATE_OBJ := $(TEMPLATE_SRC:backends/wasm/template/%.c=$(ENGINE_OUT)/%.o)
TEMPLATE_CFLAGS := -std=gnu11 $(WARN) -O2 -g $(HARDEN) -I. -I$(ENGINE_OUT) -isystem $(WABT_RUNTIME) -MMD -MP \
	-DENGINE_SHA256='"$(ENGINE_SHA256)"'

$(ENGINE_TAR):
	@mkdir -p $(ENGINE_FETCH)
	cd $(ENGINE_FETCH) && npm pack --silent $(ENGINE_PACKAGE)@$(ENGINE_VERSION)

$(ENGINE_OUT)/quickjs.wasm: $(ENGINE_TAR) backends/wasm/template/engine.sha256
	@mkdir -p $(ENGINE_OUT)
	tar -xzOf $(ENGINE_TAR) package/quickjs.wasm > $@.unchecked
	echo '$(ENGINE_SHA256)  $@.unchecked' | sha256sum --check --quiet
	mv $@.unchecked $@

$(ENGINE_OUT)/engine-module.c: $(ENGINE_OUT)/quickjs.wasm
	wasm2c $< -n quickjs -o $@

$(ENGINE_OUT)/engine-parts.c: $(ENGINE_OUT)/engine-module.c backends/wasm/template/split.awk
	awk -v parts=$(words $(ENGINE_PARTS)) -f backends/wasm/template/split.awk $< $< > $@

$(ENGINE_OUT)/engine-%.o: $(ENGINE_OUT)/engine-parts.c
	$(CC) $(ENGINE_CFLAGS) -DENGINE_PART=$* -c -o $@ $<

$(ENGINE_OUT)/wasm-rt-impl.o: $(WABT_RUNTIME)/wasm-rt-impl.c
	@mkdir -p $(ENGINE_OUT)
	$(CC) $(ENGINE_CFLAGS) -I$(WABT_RUNTIME) -c -o $@ $<

# The guest's set-up script as one C string.
$(ENGINE_OUT)/shim-source.h: backends/wasm/template/shim.js
	@mkdir -p $(dir $@)
	{ echo 'static const char SHIM_SOURCE[] ='; sed -e '/^ *\/\//d' -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/.*/"&\\n"/' $<; echo ';'; } > $@

$(ENGINE_OUT)/%.o: backends/wasm/template/%.c $(ENGINE_OUT)/engine-module.c $(ENGINE_OUT)/shim-source.h
	$(CC) $(TEMPLATE_CFLAGS) -c -o $@ $<

# Static: a smaller address space, and so a cheaper fork.
$(ENGINE_OUT)/plimsoll-wasm: $(TEMPLATE_OBJ) $(ENGINE_OBJ)
	$(CC) -static-pie -Wl,-z,relro,-z,now -o $@ $^ -lm

$(OUT)/plimsoll-wasm: $(ENGINE_OUT)/plimsoll-wasm
	@mkdir -p $(OUT)
	cp $< $@

-include $(wildcard $(ENGINE_OUT)/*.d)

# The tests that drive the real template.
$(OUT)/unit/test_wasm_run $(OUT)/unit/test_backend_role: | $(OUT)/plimsoll-wasm
