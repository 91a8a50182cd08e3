// What a JavaScript guest does with the system: files, watches, workers, children, local sockets, a FIFO, WebAssembly, timers, signals.
'use strict';
const fs = require('node:fs');
const os = require('node:os');
const net = require('node:net');
const path = require('node:path');
const zlib = require('node:zlib');
const dgram = require('node:dgram');
const crypto = require('node:crypto');
const { execFileSync, spawn, fork } = require('node:child_process');
const { Worker, isMainThread, parentPort } = require('node:worker_threads');

const once = (emitter, event) => new Promise((resolve, reject) => { emitter.once(event, resolve); emitter.once('error', reject); });

if (!isMainThread) {
  parentPort.postMessage(6 * 7);
} else if (process.argv[2] === 'forked') {
  process.send('here');
  process.disconnect();
} else {
  main().then(() => console.log('files.js: done'), (e) => { console.error(e); process.exit(1); });
}

async function files(dir) {
  const a = path.join(dir, 'a'), b = path.join(dir, 'b');
  fs.writeFileSync(a, 'x'.repeat(100000));
  fs.appendFileSync(a, 'y');
  fs.copyFileSync(a, b);
  fs.renameSync(b, b + '2');
  fs.symlinkSync('a', path.join(dir, 'link'));
  fs.linkSync(a, path.join(dir, 'hard'));
  fs.chmodSync(a, 0o600);
  fs.utimesSync(a, 1, 2);
  fs.truncateSync(a, 10);
  const fd = fs.openSync(a, 'r+');
  fs.writeSync(fd, 'z', 3);
  fs.readSync(fd, Buffer.alloc(4), 0, 4, 1);
  fs.writevSync(fd, [Buffer.from('1'), Buffer.from('2')]);
  fs.fsyncSync(fd);
  fs.fdatasyncSync(fd);
  fs.futimesSync(fd, 1, 2);
  fs.fchmodSync(fd, 0o644);
  fs.closeSync(fd);
  fs.accessSync(a);
  fs.realpathSync(path.join(dir, 'link'));
  fs.readlinkSync(path.join(dir, 'link'));
  fs.lstatSync(a, { bigint: true });
  fs.statfsSync(dir);
  fs.mkdirSync(path.join(dir, 'd/e/f'), { recursive: true });
  fs.cpSync(path.join(dir, 'd'), path.join(dir, 'g'), { recursive: true });
  fs.readdirSync(dir, { withFileTypes: true, recursive: true });
  fs.mkdtempSync(path.join(dir, 'tmp-'));
  const watcher = fs.watch(dir);
  const changed = once(watcher, 'change');
  await fs.promises.writeFile(path.join(dir, 'watched'), '1');
  await changed;
  watcher.close();
  await fs.promises.rm(path.join(dir, 'g'), { recursive: true });
  for await (const _ of await fs.promises.opendir(dir));
  await new Promise((resolve) => fs.createReadStream(a).pipe(fs.createWriteStream(b)).on('close', resolve));
}

async function sockets(dir) {
  const where = path.join(dir, 'socket');
  const server = net.createServer((s) => s.end('hello'));
  server.listen(where);
  await once(server, 'listening');
  const client = net.connect(where);
  client.resume();
  await once(client, 'end');
  server.close();
  // no other family than local ones
  await new Promise((resolve) => net.connect(9, '127.0.0.1').on('error', resolve));
  const datagram = dgram.createSocket('udp4');
  await new Promise((resolve) => { datagram.on('error', resolve); datagram.on('listening', resolve); datagram.bind(0); });
  datagram.close();
}

async function processes(dir) {
  execFileSync('sh', ['-c', 'mkfifo fifo; cat fifo & echo x >fifo; wait'], { cwd: dir });
  execFileSync('node', ['-p', '1']);
  const child = spawn('sleep', ['60'], { detached: true, stdio: ['pipe', 'inherit', 'pipe'] });
  process.kill(child.pid, 'SIGTERM');
  await once(child, 'exit');
  const forked = fork(__filename, ['forked']);
  await once(forked, 'message');
  await once(forked, 'exit');
  process.on('SIGUSR2', () => {});
  process.kill(process.pid, 'SIGUSR2');
  os.setPriority(5);
  os.getPriority();
}

async function main() {
  const dir = fs.mkdtempSync(path.join('/work', 'js-'));
  await files(dir);
  await sockets(dir);
  await processes(dir);
  await once(new Worker(__filename), 'message');
  const source = Uint8Array.from([0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 127, 3, 2, 1, 0, 7, 5, 1, 1, 102, 0, 0, 10, 6, 1, 4, 0, 65, 42, 11]);
  if (new WebAssembly.Instance(new WebAssembly.Module(source)).exports.f() !== 42) throw new Error('WebAssembly');
  const shared = new Int32Array(new SharedArrayBuffer(4));
  Atomics.wait(shared, 0, 0, 5);
  zlib.gunzipSync(zlib.gzipSync('x'.repeat(1000)));
  await new Promise((resolve) => zlib.brotliCompress('x', resolve));
  crypto.randomBytes(16);
  await new Promise((resolve) => crypto.pbkdf2('a', 'b', 1000, 32, 'sha256', resolve));
  crypto.generateKeyPairSync('ed25519');
  os.cpus(); os.freemem(); os.uptime(); os.loadavg(); os.userInfo(); os.hostname(); os.release();
  process.memoryUsage(); process.resourceUsage(); process.hrtime();
  process.chdir(dir);
  process.umask(0o22);
  const blocks = [];
  for (let i = 0; i < 200; ++i) blocks.push(Buffer.alloc(100000, i));
  const hot = (n) => { let s = 0; for (let i = 0; i < n; ++i) s += Math.sqrt(i); return s; };
  hot(1e7);
  await import('node:test');
  await new Promise((resolve) => setTimeout(resolve, 20));
}
