# A TypeScript project: checked, built, run, linted, tested. The first argument picks one tool; none: all of them.
set -eu
cd /work && mkdir -p ts && cd ts
cat >b.ts <<'TS'
export function twice(x: number): number {
  return x * 2;
}
TS
cat >a.ts <<'TS'
import assert from 'node:assert';
import test from 'node:test';
import { twice } from './b.js';
test('twice', () => assert.equal(twice(2), 4));
TS
echo '{"compilerOptions": {"target": "es2022", "module": "nodenext", "strict": true, "outDir": "out", "incremental": true}}' >tsconfig.json
echo '{"type": "module"}' >package.json
printf 'import js from "@eslint/js";\nexport default [js.configs.recommended];\n' >eslint.config.js
echo 'export const x = 1;' >good.js
case ${1:-all} in tsc | all) tsc && node --test out/a.js >/dev/null ;; esac
case ${1:-all} in tsx | all) tsx a.ts >/dev/null && tsx --test a.ts >/dev/null ;; esac
case ${1:-all} in eslint | all) eslint good.js ;; esac
echo "typescript.sh: done"
