/** Requests to the server: its sentence becomes the error, and a server that is away is noticed. */

class Refusal extends Error {
  constructor(sentence, status) {
    super(sentence);
    this.status = status;
  }
}

export const connection = new EventTarget();
let there = true;

/** Tell everybody whether the server answers, and if not, why it seems so. */
function notice(now, sentence = "") {
  if (now === there && now) return;
  there = now;
  connection.dispatchEvent(new CustomEvent(now ? "back" : "lost", { detail: sentence }));
}

async function ask(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, { credentials: "same-origin", cache: "no-store", ...options });
  } catch {
    const sentence = "The workbench does not answer. What was saved is kept; is `protofission label` still running?";
    notice(false, sentence);
    throw new Refusal(sentence, 0);
  }
  let body = null;
  try {
    body = await answer.json();
  } catch {
    body = null;
  }
  if (answer.status === 403) {
    const sentence = body?.error ?? "This page is of an earlier session: open the address that was printed last.";
    notice(false, sentence);
    throw new Refusal(sentence, answer.status);
  }
  notice(true);
  if (!answer.ok) {
    throw new Refusal(body?.error ?? `The server answered with ${answer.status}.`, answer.status);
  }
  return body;
}

export const get = (path) => ask(path);

export const post = (path, body = {}) => ask(path, {
  method: "POST",
  headers: { "Content-Type": "application/json" },
  body: JSON.stringify(body),
});
