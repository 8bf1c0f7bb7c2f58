// Streams one chat with Node's own fetch and prints each event's data on a line of its own, as it arrives.
//
//   node stream.mjs URL/v1/chat/completions BODY-AS-JSON
//
// The last line is `end`, or `error: ...` when the stream broke.

const [url, body] = process.argv.slice(2);
try {
  const answer = await fetch(url, { method: "POST", headers: { "content-type": "application/json" }, body });
  if (!answer.ok) throw new Error(`status ${answer.status}: ${await answer.text()}`);
  let rest = "";
  const decoder = new TextDecoder();
  for await (const piece of answer.body) {
    rest += decoder.decode(piece, { stream: true });
    const lines = rest.split("\n");
    rest = lines.pop();
    for (const line of lines) if (line.startsWith("data: ")) console.log(line.slice("data: ".length));
  }
  console.log(rest === "" ? "end" : `error: the stream ended inside a line: ${rest}`);
} catch (error) {
  console.log(`error: ${error.message}`);
  process.exitCode = 1;
}
