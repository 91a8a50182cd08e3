# C to WebAssembly, and what comes out of it run by Node.
set -eu
cd /work && mkdir -p c && cd c
cat >f.c <<'C'
#include <math.h>
__attribute__((export_name("f"))) double f(double x) { return sin(x) + cos(x); }
C
cat >main.c <<'C'
#include <stdio.h>
int main(void) { printf("hello\n"); return 0; }
C
clang --target=wasm32-wasi -O2 -nostartfiles -Wl,--no-entry -o f.wasm f.c -lm
clang --target=wasm32-wasi -O2 -c -o main.o main.c
wasm-ld --version >/dev/null
clang --target=wasm32-wasi -O2 -o main.wasm main.o
node -e '
const fs = require("node:fs");
const m = new WebAssembly.Module(fs.readFileSync("f.wasm"));
if (WebAssembly.Module.imports(m).length !== 0) throw new Error("imports");
if (Math.abs(new WebAssembly.Instance(m).exports.f(1) - Math.sin(1) - Math.cos(1)) > 1e-12) throw new Error("wrong");
const { WASI } = require("node:wasi");
const w = new WASI({ version: "preview1" });
w.start(new WebAssembly.Instance(new WebAssembly.Module(fs.readFileSync("main.wasm")), w.getImportObject()));
' 2>/dev/null
echo "compile.sh: done"
