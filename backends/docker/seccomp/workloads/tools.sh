# What shell steps do: coreutils, grep, sed, awk, find, tar, gzip, jobs, pipes, a FIFO, traps, limits.
set -eu
cd /work && mkdir -p sh && cd sh
seq 1000 >n
sort -rn n | uniq -c | head -5 >/dev/null
sort --parallel=2 n >n2
grep -c 1 n >/dev/null
sed -i 's/1/2/' n
awk '{s += $1} END {print s}' n >/dev/null
cut -c1 n | tr 0-9 a-j | wc -l >/dev/null
cp -a n m && mv m o && ln -s n l && ln n h && chmod 600 o && touch -d @1 o && truncate -s 10 o
ls -laR . >/dev/null
stat n >/dev/null
find . -type f -exec cat {} + | xargs echo >/dev/null
tar -czf t.tgz n o && tar -xzf t.tgz -C /tmp && gzip -kf n && gunzip -f n.gz
mkdir -p d/e && rmdir d/e && cp -r d d2 && rm -r d d2
mkfifo f && { cat f >/dev/null & echo x >f; wait; }
dd if=/dev/zero of=z bs=64k count=4 2>/dev/null && sync z && du -s . >/dev/null && df . >/dev/null
sha256sum n >/dev/null && md5sum n >/dev/null && base64 n >/dev/null && od n >/dev/null && split -n 2 n
diff n n2 >/dev/null || true
(trap 'exit 0' TERM; while :; do sleep 0.01; done) & kill $! && wait $! || true
timeout 0.05 sleep 5 || true
nice -n 1 true && nohup true 2>/dev/null && env >/dev/null && id >/dev/null && uname -a >/dev/null && date >/dev/null && nproc >/dev/null
ulimit -n 100; ulimit -c 0
tail -n 1 n >/dev/null; tac n >/dev/null; tee q <n >/dev/null; shuf n >/dev/null; mktemp >/dev/null; realpath l >/dev/null
stty -a 2>/dev/null || true
bash -c 'coproc cat; echo x >&"${COPROC[1]}"; read -r y <&"${COPROC[0]}"; [[ $y == x ]]; diff <(echo 1) <(echo 1); time true' 2>/dev/null
echo "tools.sh: done"
