/** The part of the pipeline that runs streams, a message at a time. */
import { create, type DescMessage, type Message, type MessageInitShape } from "@bufbuild/protobuf";
import type { ConnectError } from "@connectrpc/connect";
import { ActiveCall, type CallOptions, type CallOrigin, cancelled } from "./call.ts";
import type { StreamingMethod } from "./service.ts";

type Responses = AsyncIterable<MessageInitShape<DescMessage>>;

/** Has no default deadline. That of the caller is enforced by whoever begins the call. */
export class ActiveStream extends ActiveCall {
  override readonly isStream = true;
  readonly #output: DescMessage;
  /** Each rejects a promise that the call waits for. */
  readonly #waiting = new Set<(reason: ConnectError) => void>();
  #close: (() => void) | undefined;

  constructor({ descriptor }: StreamingMethod, origin: CallOrigin, options: CallOptions) {
    super(descriptor, origin, Number.POSITIVE_INFINITY, options);
    this.#output = descriptor.output;
  }

  /** Runs the method. @throws ConnectError only, which may be shown to the caller */
  async *responses(run: (call: this) => Responses): AsyncGenerator<Message, void, undefined> {
    try {
      const messages = await this.orStopped(async () => run(this)[Symbol.asyncIterator]());
      const close = async () => messages.return?.();
      // The call has ended already, so an error while the method is closed is ignored.
      this.#close = () => void close().catch(() => undefined);
      for (;;) {
        const next = await this.orStopped(() => messages.next());
        if (next.done) break;
        yield create(this.#output, next.value);
      }
      this.succeed();
    } catch (thrown) {
      throw this.fail(thrown);
    } finally {
      // Has an effect only if the reader stopped reading before the end.
      this.stop(cancelled);
    }
  }

  /** Waits for `work`, and rejects when the call is stopped. */
  orStopped<T>(work: () => Promise<T>): Promise<T> {
    if (this.failure) return Promise.reject(this.failure);
    return new Promise<T>((resolve, reject) => {
      this.#waiting.add(reject);
      work()
        .then(resolve, reject)
        .finally(() => this.#waiting.delete(reject));
    });
  }

  override fail(thrown: unknown): ConnectError {
    const isFirst = this.failure === undefined;
    const failure = super.fail(thrown);
    if (isFirst) this.#close?.();
    return failure;
  }

  protected override interrupted(reason: ConnectError): void {
    for (const reject of this.#waiting) reject(reason);
    this.#close?.();
  }
}
