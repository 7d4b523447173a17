/** Signs a user in by phone, with no secret in the page: challenge, PKCE, DPoP, refresh. */
const AUTH = "http://127.0.0.1:8080/api/auth";
const CLIENT_ID = "app";
/** What the tokens are for. Not `sessions`: whoever is sent one with it could end all of the user's sessions. */
const SCOPE = "profile orders";

/** Sends a code to the phone. @throws with `error`, such as access_denied, and `retryAfter` in seconds if it is 429 */
export async function begin(phone) {
  const verifier = random();
  const digest = await crypto.subtle.digest("SHA-256", bytes(verifier));
  const pkce = { code_challenge: base64url(digest), code_challenge_method: "S256" };
  const form = { response_type: "code", login_hint: phone, scope: SCOPE, ...pkce };
  const { auth_session } = expecting("insufficient_authorization", await post("authorize-challenge", form));
  await save("pending", { verifier, auth_session });
}

/** Sends another code, `resend_after` seconds after the last. */
export async function resend() {
  const { auth_session } = await load("pending");
  expecting("insufficient_authorization", await post("authorize-challenge", { auth_session }));
}

/** Signs in with the code that the user has typed. @returns false if it is wrong, and may be typed again */
export async function enter(otp) {
  const { verifier, auth_session } = await load("pending");
  const checked = await post("authorize-challenge", { auth_session, otp });
  if (checked.error === "insufficient_authorization") return false;
  const { authorization_code: code } = expecting(undefined, checked);
  const exchange = { grant_type: "authorization_code", code, code_verifier: verifier };
  await keep(await post("tokens", { ...exchange, device_name: "Browser" }));
  return true;
}

/** An access token that is good for half a minute, refreshed if need be. @returns undefined if nobody is signed in */
export async function accessToken() {
  const pair = await load("pair");
  if (!pair || Date.now() < pair.refreshAt) return pair?.access_token;
  const { refresh_token } = pair;
  const next = await post("tokens", { grant_type: "refresh_token", refresh_token });
  if (next.error !== "invalid_grant") return keep(next);
  await save("pair", undefined);
}

export async function signOut() {
  const pair = await load("pair");
  if (pair) expecting(undefined, await post("revoke", { token: pair.refresh_token }));
  await save("pair", undefined);
}

async function keep(pair) {
  expecting(undefined, pair);
  await save("pair", { ...pair, refreshAt: Date.now() + (pair.expires_in - 30) * 1000 });
  return pair.access_token;
}

/** Posts a form with a proof. A device whose clock is off is given a nonce, and posts again with it. */
async function post(path, form, nonce) {
  const url = `${AUTH}/oauth2/v1/${path}`;
  const headers = { DPoP: await proof(url, nonce) };
  const body = new URLSearchParams({ client_id: CLIENT_ID, ...form });
  const response = await fetch(url, { method: "POST", headers, body });
  const result = await response.json();
  if (result.error !== "use_dpop_nonce" || nonce) {
    return { ...result, retryAfter: Number(response.headers.get("Retry-After")) };
  }
  return post(path, form, response.headers.get("DPoP-Nonce"));
}

function expecting(error, result) {
  if (result.error === error) return result;
  throw Object.assign(new Error(result.error_description), result);
}

async function proof(url, nonce) {
  const { publicKey, privateKey } = await keys();
  const { kty, crv, x, y } = await crypto.subtle.exportKey("jwk", publicKey);
  const header = { typ: "dpop+jwt", alg: "ES256", jwk: { kty, crv, x, y } };
  const claims = { jti: random(), htm: "POST", htu: url, iat: Math.floor(Date.now() / 1000), nonce };
  const content = [header, claims].map((part) => base64url(bytes(JSON.stringify(part)))).join(".");
  const signature = await crypto.subtle.sign({ name: "ECDSA", hash: "SHA-256" }, privateKey, bytes(content));
  return `${content}.${base64url(signature)}`;
}

/** The key of this browser, whose private half nobody can read: not extractable. */
async function keys() {
  const known = await load("keys");
  if (known) return known;
  const made = await crypto.subtle.generateKey({ name: "ECDSA", namedCurve: "P-256" }, false, ["sign"]);
  await save("keys", made);
  return made;
}

const load = (name) => stored("readonly", (kept) => kept.get(name));
const save = (name, value) => stored("readwrite", (kept) => kept.put(value, name));

/** IndexedDB, which keeps a key without reading it. */
function stored(mode, act) {
  return new Promise((resolve, reject) => {
    const opening = indexedDB.open("gatepost", 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore("kept");
    opening.onerror = () => reject(opening.error);
    opening.onsuccess = () => {
      const transaction = opening.result.transaction("kept", mode);
      const request = act(transaction.objectStore("kept"));
      transaction.oncomplete = () => resolve(request.result);
      transaction.onabort = () => reject(transaction.error);
    };
  });
}

const bytes = (text) => new TextEncoder().encode(text);
const random = () => base64url(crypto.getRandomValues(new Uint8Array(32)));

function base64url(buffer) {
  const text = btoa(String.fromCharCode(...new Uint8Array(buffer)));
  return text.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}
