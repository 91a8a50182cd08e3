// The official JavaScript SDK against the stand-in: its main flows ("flow"), or every row of oracle.json ("oracle").
// Prints a line of JSON for each check: {name, ok, detail}. The stand-in's addresses come from the SDK's own environment variables.
import { createHash, webcrypto } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

globalThis.crypto ??= webcrypto // Node 18 has it under its module's name alone
const { Sandbox, CommandExitError } = await import(pathToFileURL(join(process.env.SDK_FOLDER, 'node_modules/e2b/dist/index.mjs')).href)

const hash = (data) => createHash('sha256').update(data).digest('hex')
const say = (line) => process.stdout.write(JSON.stringify(line) + '\n')
const equal = (a, b) => {
  if (JSON.stringify(a) !== JSON.stringify(b)) throw new Error(`${JSON.stringify(a)} is not ${JSON.stringify(b)}`)
}

async function check(name, work) {
  try {
    const detail = await work()
    say({ name, ok: true, detail: detail ?? null })
  } catch (e) {
    say({ name, ok: false, detail: `${e?.constructor?.name}: ${e?.message}`.slice(0, 500) })
  }
}

async function thrown(work) {
  try {
    await work()
  } catch (e) {
    return e
  }
  throw new Error('nothing was thrown')
}

async function admin(method, name, value) {
  const answer = await fetch(`${process.env.E2B_API_URL}/__standin/${name}`, {
    method,
    headers: { Authorization: `Bearer ${process.env.STANDIN_TOKEN}` },
    body: value === undefined ? undefined : JSON.stringify(value),
  })
  if (!answer.ok) throw new Error(`${name}: ${answer.status} ${await answer.text()}`)
  return answer.json()
}

async function flow() {
  let s
  await check('create without options', async () => {
    s = await Sandbox.create()
    if (!/^i[a-z0-9]{20}$/.test(s.sandboxId)) throw new Error(s.sandboxId)
    equal(s.trafficAccessToken, undefined)
  })
  await check('create with metadata, deny-all and no public traffic', async () => {
    const b = await Sandbox.create({
      metadata: { k: 'v' }, timeoutMs: 60_000, allowInternetAccess: false, network: { denyOut: ['0.0.0.0/0'], allowPublicTraffic: false },
    })
    if (!b.trafficAccessToken) throw new Error('no traffic token')
    const info = await b.getInfo()
    equal([info.metadata, info.network?.denyOut, info.network?.allowPublicTraffic, info.allowInternetAccess], [{ k: 'v' }, ['0.0.0.0/0'], false, false])
    const r = await b.commands.run(`node -e "require('net').connect(443,'192.0.2.1').on('error',e=>console.log(e.code))"`)
    await b.kill()
    return r.stdout.trim()
  })
  await check('exit 0, both outputs', async () => {
    const r = await s.commands.run('echo out; echo err >&2')
    equal([r.exitCode, r.stdout, r.stderr], [0, 'out\n', 'err\n'])
  })
  await check('exit 3', async () => {
    const e = await thrown(() => s.commands.run('echo partial; exit 3'))
    if (!(e instanceof CommandExitError)) throw e
    equal([e.exitCode, e.stdout], [3, 'partial\n'])
  })
  await check('missing command', async () => equal((await thrown(() => s.commands.run('no-such-command'))).exitCode, 127))
  await check('callbacks in order', async () => {
    const seen = []
    await s.commands.run('for i in 1 2 3; do echo $i; sleep 0.05; done', { onStdout: (d) => { seen.push(d) } })
    equal(seen.join(''), '1\n2\n3\n')
  })
  await check('environment and folder', async () => {
    const r = await s.commands.run('echo $A; pwd; id -un; echo $E2B_SANDBOX', { envs: { A: 'b c' }, cwd: '/tmp' })
    equal(r.stdout, 'b c\n/tmp\nuser\ntrue\n')
  })
  await check('as root', async () => equal((await s.commands.run('id -u', { user: 'root' })).stdout, '0\n'))
  await check('unknown user', async () => equal((await thrown(() => s.commands.run('id', { user: 'nobody-here' }))).constructor.name, 'AuthenticationError'))
  await check('missing folder', async () => equal((await thrown(() => s.commands.run('id', { cwd: '/nope' }))).constructor.name, 'InvalidArgumentError'))
  await check('in the background, connect and kill', async () => {
    const handle = await s.commands.run('read x; echo late; exec sleep 100', { background: true, stdin: true })
    const again = await s.commands.connect(handle.pid)
    await handle.sendStdin('go\n')
    for (let i = 0; i < 500 && again.stdout === ''; i++) await new Promise((r) => setTimeout(r, 20))
    equal(again.stdout, 'late\n')
    equal((await s.commands.list()).map((p) => p.pid).includes(handle.pid), true)
    equal(await handle.kill(), true)
    const e = await thrown(() => handle.wait())
    equal([e.constructor.name, e.exitCode, e.error], ['CommandExitError', -1, 'signal: killed'])
    equal(await s.commands.kill(handle.pid), false)
  })
  await check('standard input and its end', async () => {
    const handle = await s.commands.run('cat', { background: true, stdin: true })
    await s.commands.sendStdin(handle.pid, 'abc')
    await s.commands.sendStdin(handle.pid, 'def')
    await s.commands.closeStdin(handle.pid)
    equal((await handle.wait()).stdout, 'abcdef')
  })
  await check('no standard input is an empty one', async () => equal((await s.commands.run('cat; echo end')).stdout, 'end\n'))
  await check('a MiB of output', async () => {
    const r = await s.commands.run("head -c 1048576 /dev/zero | tr '\\0' x")
    equal([r.stdout.length, hash(r.stdout)], [1048576, hash('x'.repeat(1048576))])
  })
  await check('a terminal', async () => {
    let text = ''
    const handle = await s.pty.create({ cols: 90, rows: 20, onData: (d) => { text += Buffer.from(d).toString() } })
    await s.pty.resize(handle.pid, { cols: 100, rows: 30 })
    await s.pty.sendInput(handle.pid, Buffer.from('stty size; exit 4\n'))
    const e = await thrown(() => handle.wait())
    equal([e.exitCode, text.includes('30 100')], [4, true])
  })
  await check('a time limit', async () => {
    const e = await thrown(() => s.commands.run('sleep 100', { timeoutMs: 1000 }))
    equal(e.constructor.name, 'TimeoutError')
    for (let i = 0; i < 500 && (await s.commands.list()).length > 0; i++) await new Promise((r) => setTimeout(r, 20))
    equal((await s.commands.list()).length, 0)
  })
  await check('write, read, exists, info', async () => {
    const written = await s.files.write('/home/user/d/a.txt', 'hello é')
    equal([written.name, written.path, written.type], ['a.txt', '/home/user/d/a.txt', 'file'])
    equal(await s.files.read('d/a.txt'), 'hello é')
    equal([await s.files.exists('/home/user/d/a.txt'), await s.files.exists('/nope')], [true, false])
    const info = await s.files.getInfo('/home/user/d/a.txt')
    equal([info.size, info.owner, info.permissions, info.type], [8, 'user', '-rw-r--r--', 'file'])
  })
  await check('list, make, rename, remove', async () => {
    equal([await s.files.makeDir('/home/user/m/n'), await s.files.makeDir('/home/user/m/n')], [true, false])
    await s.files.write('/home/user/m/f', '1')
    equal((await s.files.list('/home/user/m')).map((e) => `${e.name} ${e.type}`).sort(), ['f file', 'n dir'])
    equal((await s.files.list('/home/user', { depth: 2 })).map((e) => e.name).includes('n'), true)
    await s.files.rename('/home/user/m/f', '/home/user/m/g')
    equal(await s.files.read('/home/user/m/g'), '1')
    await s.files.remove('/home/user/m')
    equal(await s.files.exists('/home/user/m'), false)
  })
  await check('several files in one write', async () => {
    const written = await s.files.write([{ path: '/tmp/w1', data: 'one' }, { path: '/tmp/w2', data: 'two' }])
    equal(written.map((w) => w.path), ['/tmp/w1', '/tmp/w2'])
    equal((await s.commands.run('cat /tmp/w1 /tmp/w2')).stdout, 'onetwo')
  })
  await check('bytes of every value', async () => {
    const data = new Uint8Array(300_000).map((_, i) => i % 251 ^ (i >> 8))
    await s.files.write('/home/user/bin', data.buffer)
    equal(hash(await s.files.read('/home/user/bin', { format: 'bytes' })), hash(data))
    equal((await s.commands.run('sha256sum bin')).stdout.split(' ')[0], hash(data))
  })
  await check('a file that is not there', async () => equal((await thrown(() => s.files.read('/nope'))).constructor.name, 'FileNotFoundError'))
  await check('a folder is watched', async () => {
    const seen = []
    const watch = await s.files.watchDir('/home/user', (e) => { seen.push(`${e.type} ${e.name}`) })
    await s.files.write('/home/user/watched', 'x')
    for (let i = 0; i < 500 && !seen.includes('create watched'); i++) await new Promise((r) => setTimeout(r, 20))
    await watch.stop()
    equal(seen.includes('create watched'), true)
  })
  await check('signed URLs', async () => {
    const up = await s.uploadUrl('/home/user/signed', { useSignatureExpiration: 100 })
    const form = new FormData()
    form.append('file', new Blob(['by form']), 'signed')
    equal((await fetch(up, { method: 'POST', body: form })).status, 200)
    const down = await s.downloadUrl('/home/user/signed')
    equal(await (await fetch(down)).text(), 'by form')
    equal((await fetch(down.replace('signature=v1_', 'signature=v1_x'))).status, 400)
  })
  await check('a list by metadata that needs every layer of encoding', async () => {
    const b = await Sandbox.create({ metadata: { inst: 'a b&c=d/é' } })
    const found = await Sandbox.list({ query: { metadata: { inst: 'a b&c=d/é' } } }).nextItems()
    const none = await Sandbox.list({ query: { metadata: { inst: 'a b' } } }).nextItems()
    await b.kill()
    equal([found.map((f) => f.sandboxId), none.length], [[b.sandboxId], 0])
  })
  await check('pages of two over five', async () => {
    const made = await Promise.all([1, 2, 3, 4, 5].map(() => Sandbox.create({ metadata: { pages: 'yes' } })))
    const pages = Sandbox.list({ limit: 2, query: { metadata: { pages: 'yes' } } })
    const sizes = [], ids = new Set()
    while (pages.hasNext) {
      const page = await pages.nextItems()
      sizes.push(page.length)
      page.forEach((p) => ids.add(p.sandboxId))
    }
    await Promise.all(made.map((m) => m.kill()))
    equal([sizes, ids.size], [[2, 2, 1], 5])
  })
  await check('info and time to live', async () => {
    const info = await s.getInfo()
    equal([info.sandboxId, info.state, info.cpuCount, info.memoryMB, info.envdVersion], [s.sandboxId, 'running', 2, 512, '0.6.13'])
    await s.setTimeout(3_600_000)
    const later = await s.getInfo()
    equal(later.endAt > info.endAt, true)
  })
  await check('metrics', async () => equal((await s.getMetrics())[0].cpuCount, 2))
  await check('network update', async () => {
    await s.updateNetwork({ denyOut: ['0.0.0.0/0'], allowOut: ['guard.example'] })
    const { network } = await s.getInfo()
    equal([network.denyOut, network.allowOut], [['0.0.0.0/0'], ['guard.example']])
    const e = await thrown(() => s.updateNetwork({ allowOut: ['guard.example'] }))
    equal(e.message.includes('0.0.0.0/0'), true)
    await s.updateNetwork({})
  })
  await check('pause, listed as paused, connect: same file, same process', async () => {
    const handle = await s.commands.run('sleep 0.5; while :; do sleep 0.2; done', { background: true })
    await handle.disconnect()
    await s.files.write('/home/user/kept', 'kept')
    equal([await s.pause(), await s.pause()], [true, false])
    equal((await Sandbox.list({ query: { state: ['paused'] } }).nextItems()).map((f) => f.sandboxId), [s.sandboxId])
    equal(await s.isRunning(), false)
    const back = await Sandbox.connect(s.sandboxId, { timeoutMs: 60_000 })
    equal([await back.files.read('/home/user/kept'), (await back.commands.list()).map((p) => p.pid)], ['kept', [handle.pid]])
    s = back
  })
  await check('running, killed, killed again', async () => {
    equal([await s.isRunning(), await s.kill(), await s.kill(), await s.isRunning()], [true, true, false, false])
    equal((await thrown(() => s.setTimeout(1000))).constructor.name, 'SandboxNotFoundError')
  })
  await check('ends at its time to live', async () => {
    const b = await Sandbox.create({ timeoutMs: 30_000 })
    await admin('POST', 'clock', { advance_ms: 31_000 })
    equal([await b.isRunning(), await b.kill()], [false, false])
  })
  await check('a template that is not there', async () => equal((await thrown(() => Sandbox.create('no-such-template'))).message.startsWith('404'), true))
}

const OPERATIONS = {
  create: async () => { await (await Sandbox.create()).kill() },
  kill: (s) => s.kill(),
  run: async (s) => (await s.commands.run('echo out')).exitCode,
  run_long: async (s) => (await s.commands.run('for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.05; done')).stdout,
  kill_command: async (s) => {
    const handle = await s.commands.run('sleep 100', { background: true })
    return handle.kill()
  },
  read: (s) => s.files.read('/etc/hostname'),
  write: (s) => s.files.write('/home/user/oracle', 'x'),
  exists: (s) => s.files.exists('/etc/hostname'),
  make_dir: (s) => s.files.makeDir('/home/user/oracle-folder'),
  pause: (s) => s.pause(),
  set_timeout: (s) => s.setTimeout(100_000),
  get_info: async (s) => (await s.getInfo()).state,
  connect: async (s) => { await Sandbox.connect(s.sandboxId) },
  is_running: (s) => s.isRunning(),
}

async function oracle() {
  for (const row of JSON.parse(readFileSync(process.argv[3], 'utf8'))) {
    await admin('DELETE', 'faults')
    const s = row.do === 'create' ? undefined : await Sandbox.create()
    await admin('PUT', 'faults', row.rules)
    let result
    try {
      result = { value: (await OPERATIONS[row.do](s)) ?? null }
    } catch (e) {
      result = { error: e.constructor.name, message: String(e.message).slice(0, 300) }
    }
    const hits = (await admin('GET', 'faults')).map((r) => r.hits)
    await admin('DELETE', 'faults')
    if (s) await s.kill()
    say({ name: row.name, ok: true, detail: { ...result, hits } })
  }
}

await (process.argv[2] === 'oracle' ? oracle() : flow())
process.exit(0)
