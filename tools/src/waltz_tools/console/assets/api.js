// Questions to the console. A refusal is an Error with the server's one sentence; 401 asks for the token.

export class Refused extends Error {
  constructor(status, sentence) {
    super(sentence);
    this.status = status;
  }
}

export async function ask(path, options) {
  let answer;
  try {
    answer = await fetch(`/api/${path}`, { credentials: "same-origin", ...options });
  } catch {
    throw new Refused(0, "The console does not answer: was it stopped?");
  }
  const body = await answer.json().catch(() => ({ error: `the console answered ${answer.status}` }));
  if (!answer.ok) throw new Refused(answer.status, body.error || `the console answered ${answer.status}`);
  return body;
}

// Why a stream of this path was refused: the browser does not say. Empty when it would not be refused now.
export async function whyRefused(path) {
  const stop = new AbortController();
  try {
    const answer = await fetch(`/api/${path}`, { credentials: "same-origin", signal: stop.signal });
    if (answer.ok) return "";
    return (await answer.json()).error || `the console answered ${answer.status}`;
  } catch {
    return "The console does not answer: was it stopped?";
  } finally {
    stop.abort(); // else it would be a stream that nobody reads
  }
}

export function post(path, body) {
  return ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
}
