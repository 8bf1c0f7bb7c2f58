//! What `--help` prints.

pub(crate) const TEXT: &str = "\
llmgw-load measures an OpenAI-compatible server from outside: how fast, how many at once, at what cost, and what breaks.

  llmgw-load closed   --url http://127.0.0.1:8080 --connections 64 --for 10s
  llmgw-load open     --url http://127.0.0.1:8080 --rate 500 --for 10s
  llmgw-load streams  --url http://127.0.0.1:8080 --streams 1000 --events 500 --delay 30ms --together 10s
  llmgw-load overhead --direct http://127.0.0.1:9001 --via http://127.0.0.1:8080 --rounds 10
  llmgw-load cancel   --url http://127.0.0.1:8080 --engine http://127.0.0.1:9001
  llmgw-load stalled  --url http://127.0.0.1:8080 --pid 4711
  llmgw-load uploads  --url http://127.0.0.1:8080 --pid 4711
  llmgw-load mixed    --url http://127.0.0.1:8080 --admin http://127.0.0.1:9090 --pid 4711
  llmgw-load scenario COMMAND --llmgw target/release/llmgw
  llmgw-load compare  --llmgw target/dist/llmgw --peers nginx,haproxy --rounds 10      (cargo x bench overhead)
  llmgw-load quality  --llmgw target/ci/llmgw --workloads synthetic --speeds 50                (cargo x bench quality)

COMMANDS
  closed    so many connections, each asks again when it is answered: throughput and cost
  open      a constant rate; latency counts from the moment a request was due
  streams   many streams open together: first event, gaps, and the bytes of each compared with the others
            (or with a reference: --expect-from URL of the engine itself)
  overhead  the same load directly and through a gateway, in turn, over many rounds: what the gateway adds
  cancel    clients that leave; the simulated engine's recording says when it learned of it
  stalled   clients that stop reading a long stream; what the process holds for each
  uploads   many large bodies at once; memory over the bytes in flight
  mixed     every kind of call and ending, many times; memory and gauges afterwards
  replay    a trace of real traffic (bench/data): prompts of its lengths and shared blocks, at its times
  sessions  conversations: each turn repeats what was said, names its session, and waits for the last answer
  ring      what each core of the gateway asks of the kernel under mixed load, counted by the kernel; needs root
  compare   gateways in turn on the same load and pinning, over interleaved rounds: CPU, delays, memory, failures,
            against the bars; a table, and overhead.{json,svg,md}
  quality   where prompts go: traces and made-up chats as real requests to simulated engines with small caches, under
            one policy after another; blocks hit, balance, time to the first token; quality.{json,svg,md}
  mock      an engine of ready-made bytes, on one thread, for compare
  drain     as a scenario only: the gateway is told to stop under load, before a client that watches its readiness
  reloads   as a scenario only: half of what the gateway takes, while its configuration changes and streams run
  scenario  starts simulated engines and a gateway, runs one of the commands above against them, ends them

A URL without a path means /v1/chat/completions. Times are written 250us, 30ms, 1.5s, 2m.

EVERY COMMAND
  --model NAME        asked for (test-model)          --json FILE   the result as JSON, too
  --pid PID           process to measure              --quiet       no progress on standard error
  --timeout TIME      limit of one call (60s; streams 120s)

CLOSED       --connections N (16)  --for TIME (10s) or --calls N  --warm-up TIME (1s)  --prompt-bytes N (256)
             --prompts N (16 different ones)  --max-tokens N (8)  --stream
             --prompt-bytes-to N (sizes spread from --prompt-bytes to this)
OPEN         --rate N (200)  --for TIME (10s)  --max-open N (2000)  and the prompt options of closed
STREAMS      --streams N (100)  --events N (100)  --delay TIME (20ms)  --event-bytes N  --ramp TIME (1s)
             --together TIME (0s: all must be open together for so long)  --expect-from URL
             --admin URL (whose gauge must show every stream and then none)
             --usage asked|absent (asked: whether the calls ask for the usage event)
OVERHEAD     --rate N (200)  --rounds N (10)  --round TIME (1s)  --added-p99-max TIME (2ms)  and the prompt options
CANCEL       --engine URL (once for each)  --calls N (8 in each of four groups)  --cut-after TIME (1s)
             --delay-max TIME (5ms)
STALLED      --clients N (32)  --stream-mib N (200)  --held-max-kib N (256)
UPLOADS      --bodies N (100)  --body-mb N (30)  --ratio-max N (1.2)
MIXED        --admin URL  --calls N (100000)  --connections N (32)  --growth-max-kib N (8192)
REPLAY       --trace FILE  --speed N (1)  --calls N (all)  --bytes-per-token N (4)  --output-max TOKENS
SESSIONS     --sessions N (32)  --turns N (5)  --system-bytes N (4000)  --turn-bytes N (500)  --max-tokens N (32)
             --think TIME (200ms)
RING         --pid PID  --seconds N (10)  --connections N (16, and as many for streams)
             --only whole|streams  --calls N (2000 whole, 100 streams): one kind of call, so many, and nothing else
COMPARE      --llmgw PATH  --stock PATH  --peers NAME,… (stock,nginx,haproxy,envoy,pingora,sglang-router,vllm-router;
             also sglang-router-ca, vllm-router-ca: their cache-aware policies; stock-bare: stock without a gateway's
             work; hyper: a bare proxy on it, the floor of both; installed by bench/peers/install)
             --rounds N (10; quick 2)  --steps NAME,… (ns,open500,open30,s0,s20,s50,b100k,b1m,p150,c1000,c5000)
             --quick (windows a third as long)  --gateway-cpu N (0)  --load-cpu N (1)  --peers-dir DIR
             --priority N (-20..19: the session's weight against other work on the machine; an administrator's)
             --out DIR (target/overhead)  --publish (docs/measurements, and the README's block)  --profile NAME
             --from FILE (an overhead.json: write table, page and plot again, measure nothing)
QUALITY      --llmgw PATH  --workloads NAME,… (conversation,synthetic,chats-1,chats-2,chats-3: the traces, and chats
             made up from a seed)  --policies NAME,… (all)  --speeds N,… (50,100)  --minutes N (whole)
             --traces DIR (bench/data)  --engines N (8)  --blocks N (2000 in each cache)  --prefill N (8000 tokens/s)
             --bytes-per-token N (4; 2 to 4)
             --peers-dir DIR  --priority N  --profile NAME  --out DIR (target/quality)  --publish (docs/measurements)
             --onto FILE (a quality.json: what is measured now takes the place of the same runs in it)
             --from FILE (write table, page and plot again, measure nothing)
MOCK         --ports N (1)
DRAIN        --rate N (2000)  --before TIME (3s)  --settle TIME (5s)  --notices-after TIME (3s: sends on for so long)
             --streams N (50)  --fresh-every N (10)
RELOADS      --reloads N (50)  --streams N (100 in each wave)  --connections N (32)  --measured-for TIME (5s)
             --share N (0.5 of what was measured)
SCENARIO     --llmgw PATH  --engines N (3; reloads 6)  --engine-flag=FLAG (once for each)  and the command's own options

The delay, event and cancel options steer a simulated engine (llmgw sim-engine) by an instruction in the prompt; a real
engine takes it for text. Exit code 0: a good run. 1: the table says what failed. 64: a wrong command line.
77: the machine or the user does not allow to measure it.
";
