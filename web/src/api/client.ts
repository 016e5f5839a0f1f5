/** Requests to the server this page came from: its key, its errors, and whether it is there. */

export class ApiError extends Error {
  constructor(
    message: string,
    readonly status: number,
    readonly code: string,
  ) {
    super(message);
    this.name = "ApiError";
  }
}

/** The server cannot be reached, or went away in the middle of an answer. */
export class ConnectionLost extends Error {
  constructor() {
    super("The server cannot be reached");
    this.name = "ConnectionLost";
  }
}

const KEY = "inferno.key";

export function setKey(key: string): void {
  localStorage.setItem(KEY, key);
}

export function hasKey(): boolean {
  return localStorage.getItem(KEY) !== null;
}

export interface Request {
  method?: string;
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

/** Sends a request; what is not an answer of 2xx is thrown as `ApiError` or `ConnectionLost`. */
export async function request(path: string, options: Request = {}): Promise<Response> {
  const headers: Record<string, string> = { ...options.headers };
  const key = localStorage.getItem(KEY);
  if (key) headers["authorization"] = `Bearer ${key}`;
  if (options.body !== undefined) headers["content-type"] = "application/json";
  let response: Response;
  try {
    response = await fetch(path, {
      method: options.method ?? (options.body === undefined ? "GET" : "POST"),
      headers,
      body: options.body === undefined ? undefined : JSON.stringify(options.body),
      signal: options.signal,
    });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ConnectionLost();
  }
  if (!response.ok) throw await errorOf(response);
  return response;
}

export async function requestJson<T>(path: string, options: Request = {}): Promise<T> {
  return (await (await request(path, options)).json()) as T;
}

async function errorOf(response: Response): Promise<ApiError> {
  const text = await response.text().catch(() => "");
  try {
    const { error } = JSON.parse(text) as { error: { message: string; code?: unknown } };
    return new ApiError(error.message, response.status, String(error.code ?? ""));
  } catch {
    return new ApiError(text.slice(0, 500) || response.statusText, response.status, "");
  }
}
