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

export function post(path, body) {
  return ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
}
