/** Generated from openapi/otp-verifier.yaml by `npm run gen`. Do not edit. */

export interface paths {
    "/v1/verifications": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Send a one-time code
         * @description Sends a new code to the phone. A code that was sent before is void.
         */
        post: operations["startVerification"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/verifications/check": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Check a one-time code
         * @description With a code: whether it is the right one for this phone; a right code works once. Without a code:
         *     whether this phone passed a check just now; that answer, too, is given once.
         */
        post: operations["checkVerification"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/verifications/confirm": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Check a code and get a proof
         * @description Checks the code as `checkVerification` does. A right one is answered with a signed JWT that proves
         *     it, for `grant_type=phone_otp_token`, and counts as a check passed just now.
         */
        post: operations["confirmVerification"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/messages": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Read the messages that would have been sent (development only)
         * @description The built-in verifier sends no text messages; it shows them here and in the server's output, and with them those
         *     that the auth service would have sent to users of apps.
         */
        get: operations["listMessages"];
        put?: never;
        post?: never;
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
        /** @description Phone number in international format. */
        Phone: string;
        /** @description The one-time code. */
        OneTimeCode: string;
        VerificationStart: {
            phone: components["schemas"]["Phone"];
        };
        VerificationStarted: {
            /**
             * Format: int64
             * @description Seconds until the code expires.
             */
            expiresIn: number;
        };
        VerificationCheck: {
            phone: components["schemas"]["Phone"];
            /** @description The one-time code, or absent to ask about a check just now; null is refused, as it is neither. */
            code?: components["schemas"]["OneTimeCode"];
        };
        VerificationOutcome: {
            /** @description Whether the check was passed. */
            verified: boolean;
        };
        VerificationConfirmation: {
            phone: components["schemas"]["Phone"];
            code: components["schemas"]["OneTimeCode"];
        };
        VerificationProof: {
            /** @description Whether the check was passed. */
            verified: boolean;
            /** @description The proof; only when the check was passed. */
            otpVerificationToken?: string;
            /**
             * Format: int64
             * @description Seconds until the proof expires.
             */
            expiresIn?: number;
        };
        TextMessages: {
            /** @description Messages, the newest first. */
            messages: components["schemas"]["TextMessage"][];
        };
        /** @description A message that would have been sent. */
        TextMessage: {
            /** @description The phone number. */
            phone: string;
            /** @description The one-time code. */
            code: string;
            /**
             * Format: date-time
             * @description When it would have been sent.
             */
            sentAt: string;
        };
        /** @description An error (RFC 9457). */
        Problem: {
            /** @description A URI reference that names the kind of problem. */
            type: string;
            /** @description The kind of problem in words. */
            title: string;
            /** @description The HTTP status. */
            status: number;
            /** @description What is wrong here. */
            detail: string;
            /** @description The problem's code. */
            code: string;
            /** @description Names the request in the logs. */
            requestId?: string;
            /** @description What is wrong with the input, place by place. */
            errors?: components["schemas"]["ProblemError"][];
        };
        /** @description Something wrong at one place of the input. */
        ProblemError: {
            /** @description JSON pointer into the request. */
            pointer: string;
            /** @description What is wrong there. */
            message: string;
        };
    };
    responses: {
        /** @description The request is not valid. */
        InvalidRequest: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description The path does not have this method. */
        MethodNotAllowed: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                Allow: components["headers"]["Allow"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description Codes are sent to this phone too often. */
        TooManyRequests: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                "Retry-After": components["headers"]["Retry-After"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
    };
    parameters: never;
    requestBodies: never;
    headers: {
        /**
         * @description Names this request in the logs.
         * @example 0c6d3e2a
         */
        "X-Request-Id": string;
        /**
         * @description The methods of this path.
         * @example POST, OPTIONS
         */
        Allow: string;
        /**
         * @description Seconds to wait before the next attempt.
         * @example 30
         */
        "Retry-After": number;
    };
    pathItems: never;
}
export type $defs = Record<string, never>;
export interface operations {
    startVerification: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["VerificationStart"];
            };
        };
        responses: {
            /** @description The code is on its way. */
            202: {
                headers: {
                    "X-Request-Id": components["headers"]["X-Request-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["VerificationStarted"];
                };
            };
            400: components["responses"]["InvalidRequest"];
            405: components["responses"]["MethodNotAllowed"];
            413: components["responses"]["InvalidRequest"];
            415: components["responses"]["InvalidRequest"];
            429: components["responses"]["TooManyRequests"];
        };
    };
    checkVerification: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["VerificationCheck"];
            };
        };
        responses: {
            /** @description The result of the check. */
            200: {
                headers: {
                    "X-Request-Id": components["headers"]["X-Request-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["VerificationOutcome"];
                };
            };
            400: components["responses"]["InvalidRequest"];
            405: components["responses"]["MethodNotAllowed"];
            413: components["responses"]["InvalidRequest"];
            415: components["responses"]["InvalidRequest"];
        };
    };
    confirmVerification: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["VerificationConfirmation"];
            };
        };
        responses: {
            /** @description The result of the check, and the proof if it was passed. */
            200: {
                headers: {
                    "X-Request-Id": components["headers"]["X-Request-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["VerificationProof"];
                };
            };
            400: components["responses"]["InvalidRequest"];
            405: components["responses"]["MethodNotAllowed"];
            413: components["responses"]["InvalidRequest"];
            415: components["responses"]["InvalidRequest"];
        };
    };
    listMessages: {
        parameters: {
            query: {
                /**
                 * @description The phone number, in E.164 form.
                 * @example +12025550123
                 */
                phone: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The messages to this phone, the newest first. */
            200: {
                headers: {
                    "X-Request-Id": components["headers"]["X-Request-Id"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TextMessages"];
                };
            };
            400: components["responses"]["InvalidRequest"];
            405: components["responses"]["MethodNotAllowed"];
        };
    };
}
