/** Generated from openapi/otp-webhook.yaml by `npm run gen`. Do not edit. */

export interface paths {
    "/": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Send a text message
         * @description Verify the signature before anything else, and refuse timestamps that are more than five minutes off. Write
         *     neither code nor text into a log.
         */
        post: operations["sendMessage"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /** @description A message to be sent. A request of another type may come one day; refuse what you do not know. */
        OneTimeCodeEvent: {
            type: components["schemas"]["OneTimeCodeEventType"];
            /** @description When the code was made. */
            timestamp: string;
            data: components["schemas"]["OneTimeCodeMessage"];
        };
        /**
         * @description What the request is about.
         * @enum {string}
         */
        OneTimeCodeEventType: "otp.message";
        /** @description One text message. */
        OneTimeCodeMessage: {
            /** @description To whom it goes, in E.164. */
            phone: string;
            /** @description What to send. */
            text: string;
            /** @description The code alone, for a channel that has templates of its own. */
            code: string;
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export interface operations {
    sendMessage: {
        parameters: {
            query?: never;
            header: {
                /**
                 * @description The id of the message; the same id is the same message.
                 * @example msg_0198c5d2f1c87a4e9b3d6f0a1b2c3d4e
                 */
                "webhook-id": string;
                /**
                 * @description When the request was signed, in seconds since 1970.
                 * @example 1764406800
                 */
                "webhook-timestamp": string;
                /**
                 * @description `v1,` and the base64 of the HMAC-SHA-256 of `{webhook-id}.{webhook-timestamp}.{body}` under the secret
                 *     (the bytes behind `whsec_`). Two such signatures, with a space between them, while a secret is replaced.
                 * @example v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=
                 */
                "webhook-signature": string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["OneTimeCodeEvent"];
            };
        };
        responses: {
            /** @description The message is accepted. Any other 2xx says the same. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description The message is refused. Any other status but a 2xx says the same. */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
}
