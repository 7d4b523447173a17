/** Generated from openapi/push-orchestration.yaml by `npm run gen`. Do not edit. */

export interface paths {
    "/v1/pushprovider/token": {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Save a device's push token
         * @description Registers the device with this token for the user, or renews it: call it whenever the app starts. A
         *     device is one however its token is spelled: an APNs token in upper or lower case, a browser's
         *     subscription with whatever members beside its endpoint, an installation of an app with the newest of the FCM
         *     tokens that the user has registered for it. A user has a limited number of devices
         *     (20, unless the operator has chosen another one); one more takes the place of the one that was
         *     renewed longest ago. A user may save a limited number of times a minute (60, unless the operator has
         *     chosen another number); more are a 429. A token that belonged to another user belongs to the caller from now on,
         *     and to nobody else: what was to be sent to it for the other user is not sent any more. Where the token of this
         *     call names its authorization (`sid`), the device is removed when the user is signed out of that: by the
         *     revocation of its refresh token, by the reuse of one, by a new password, or by the deletion of the identity. It
         *     stays where the authorization expires, or its client is disabled. Once `expiration` has passed the device is
         *     sent nothing more.
         */
        post: operations["savePushToken"];
        /**
         * Delete a device's push token
         * @description With `token`: deletes the device with this token if it is the caller's. With `all`: all devices of the
         *     caller. Either way the answer is 204, also when there was nothing to delete.
         *
         *     A call without a body deletes all devices of the caller as well. That is deprecated, and answered with
         *     the header `Deprecation`: a client or proxy that drops the body of a DELETE, or a developer who forgets
         *     it, deletes them all. Say `{"all": true}` if you mean it.
         */
        delete: operations["deletePushToken"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/pushprovider/test-job-notifications": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Start a test run
         * @description Sends a test notification to the users that the deployment names for it
         *     (`TEST_NOTIFICATION_USER_IDS`), and to nobody else. There is one run at a time, and one a minute at
         *     most: a call during that minute is 202 as well, and starts nothing. It needs no authentication.
         */
        post: operations["startTestNotifications"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/pushprovider/push": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Send a push notification
         * @description Sends the notification to all users who have a live device at one of the offsets. 204 means that it
         *     is stored and will go out. Who its recipients are is found within seconds after that, and sending
         *     begins meanwhile; `Notification-Id` names it to the operations that follow and steer it.
         *
         *     Repeat a call whose answer was lost with the same `Idempotency-Key`: the same key and the same
         *     notification is 204 again, with the same `Notification-Id`, and sends nothing twice. The same key
         *     with another notification is a 409. A key is remembered for 24 hours, for each client.
         */
        post: operations["sendPushNotification"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/pushprovider/notifications-history": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Read the user's notifications
         * @description A page of the notifications that the user has been sent, the newest first unless `sort` says
         *     otherwise.
         *
         *     With `markViewed=true` the entries of this page, and no others, are marked as viewed. The answer
         *     shows them as they were before, so that an app can highlight what is new; the next call shows them
         *     as viewed. Send it when the page is shown, not when it is fetched ahead.
         *
         *     Each text is in the first of the languages of `Accept-Language` that the notification has, else in its
         *     default language, and holds the user's own values.
         */
        get: operations["getNotificationsHistory"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/pushprovider/notifications-summary": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Ask whether anything is unread
         * @description Whether all of the user's notifications are viewed. With `page` or `size` it looks at that page
         *     only, as `getNotificationsHistory` would return it. Where there are none, all are viewed.
         */
        get: operations["getNotificationsSummary"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/pushprovider/notifications": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List notifications with their progress
         * @description A page of all notifications that were sent, test runs included, the newest first; with `state`, of those that
         *     are in one of these states; with `idempotencyKey`, of the one that was sent with this key: a client that cannot
         *     read the header `Notification-Id` finds it here.
         */
        get: operations["listNotifications"];
        put?: never;
        /**
         * Send a notification to anyone
         * @description Sends a notification to users, to all whose devices match filters, or to everybody. 201 means that it is
         *     stored and goes out, at least once to each device; `id` names it to the operations that follow and steer it.
         *
         *     **Who.** A device is in if its user is one of `users`, or a filter of `anyOf` matches it, or `everybody` is true.
         *     It is out if a filter of `except` matches it, or its user is one of `exceptUsers`. Within a filter all members
         *     must match, within a member one of its values. Recipients are the users of the devices that are left and, unless
         *     `history` is false, the known users among `users` who have no device. A user gets one history entry, a device
         *     one message, however filters and names overlap.
         *
         *     **What.** Texts in up to 40 languages: a device is sent the one that fits its language best (RFC 4647, over its
         *     likely script), else that of `defaultLanguage`. With `personal` in place of the rest of the audience, texts may
         *     hold `{{names}}` that each user has values for.
         *
         *     **How large.** What does not fit a provider's payload is shortened (the image goes first, then the message) or,
         *     with `tooLong` as `refuse`, a 400 that points at the text. `…/preview` shows who gets what, and how large.
         *
         *     Input that is not valid is a 400 that names every place, and stores nothing. Repeat a call whose response was lost
         *     with the same `Idempotency-Key`, as at `/push`. The body may have 1 MiB.
         */
        post: operations["createNotification"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/pushprovider/notifications/preview": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * See who would get a notification, and how large it would be
         * @description Takes what `POST /v1/pushprovider/notifications` takes, refuses what it refuses, and stores and sends nothing.
         */
        post: operations["previewNotification"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/pushprovider/notifications/{id}/recipients": {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path: {
                /**
                 * @description Id of the notification, as `Notification-Id` said.
                 * @example 019aa4b1-9d3c-7a52-8c11-5be0a1f6d201
                 */
                id: components["parameters"]["NotificationIdPath"];
            };
            cookie?: never;
        };
        /**
         * List what became of each device of a notification that names users
         * @description A page of devices with their outcomes, of a notification that only names users, at most 1,000, in the order of
         *     the users' ids. Outcomes are kept for 7 days unless the operator has chosen another time, and go with their
         *     user. Of any other notification the list is empty: its progress has the counts.
         */
        get: operations["listRecipients"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/pushprovider/notifications/{id}": {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path: {
                /**
                 * @description Id of the notification, as `Notification-Id` said.
                 * @example 019aa4b1-9d3c-7a52-8c11-5be0a1f6d201
                 */
                id: components["parameters"]["NotificationIdPath"];
            };
            cookie?: never;
        };
        /**
         * Get a notification's progress
         * @description How far the notification is, in all and by offset and provider. It counts devices; always
         *     `planned = sent + failed + dropped + deadLettered + remaining`. To follow it without asking again
         *     and again, use `push.v1.DeliveryService/WatchProgress`.
         */
        get: operations["getNotification"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/pushprovider/notifications/{id}/pause": {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path: {
                /**
                 * @description Id of the notification, as `Notification-Id` said.
                 * @example 019aa4b1-9d3c-7a52-8c11-5be0a1f6d201
                 */
                id: components["parameters"]["NotificationIdPath"];
            };
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Pause a notification
         * @description Stops sending. Nothing is lost: what has not gone out is kept, and goes out after `resumeNotification`
         *     unless it is too late for it by then. Messages in flight still arrive, for about a second. Pausing
         *     what is paused is 200 again; what has ended, by itself or cancelled, is a 409.
         */
        post: operations["pauseNotification"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/pushprovider/notifications/{id}/resume": {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path: {
                /**
                 * @description Id of the notification, as `Notification-Id` said.
                 * @example 019aa4b1-9d3c-7a52-8c11-5be0a1f6d201
                 */
                id: components["parameters"]["NotificationIdPath"];
            };
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Resume a notification
         * @description Goes on sending a notification that was paused, from where it stopped. Resuming one that is not
         *     paused changes nothing and is 200; one that has ended is a 409.
         */
        post: operations["resumeNotification"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/pushprovider/notifications/{id}/cancel": {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path: {
                /**
                 * @description Id of the notification, as `Notification-Id` said.
                 * @example 019aa4b1-9d3c-7a52-8c11-5be0a1f6d201
                 */
                id: components["parameters"]["NotificationIdPath"];
            };
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Cancel a notification
         * @description Stops sending for good. What has not gone out is dropped, and counted as such; what has gone out
         *     cannot be taken back, and history entries stay: a recall takes those away. Messages in flight still
         *     arrive, for about a second, and are `remaining` until then. What has ended, by itself or cancelled, is
         *     a 409.
         */
        post: operations["cancelNotification"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/pushprovider/notifications/{id}/recall": {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path: {
                /**
                 * @description Id of the notification, as `Notification-Id` said.
                 * @example 019aa4b1-9d3c-7a52-8c11-5be0a1f6d201
                 */
                id: components["parameters"]["NotificationIdPath"];
            };
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Recall a notification
         * @description Takes the notification out of the history of all users: from the answer on, nobody finds it there, and nobody's
         *     summary counts it as unread. What has not gone out yet is dropped, as if it was cancelled, and its dead letters
         *     are not replayed any more. What devices have shown cannot be taken back. It takes the same time for any number
         *     of users, is possible in any state, can be repeated, and is for good.
         */
        post: operations["recallNotification"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/pushprovider/notifications/{id}/failures": {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path: {
                /**
                 * @description Id of the notification, as `Notification-Id` said.
                 * @example 019aa4b1-9d3c-7a52-8c11-5be0a1f6d201
                 */
                id: components["parameters"]["NotificationIdPath"];
            };
            cookie?: never;
        };
        /**
         * List why messages of a notification failed
         * @description The reasons of the devices that are counted as `failed`, by provider, the most frequent first. A reason is a
         *     status and the provider's error code, such as `404 UNREGISTERED`.
         */
        get: operations["listFailures"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/pushprovider/providers": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List push providers with their states
         * @description The providers that this deployment uses: whether messages are sent to them, why not, and whether dead tokens are
         *     removed.
         */
        get: operations["listProviders"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/pushprovider/providers/{provider}/resume": {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path: {
                /**
                 * @description The push provider.
                 * @example fcm
                 */
                provider: components["parameters"]["ProviderPath"];
            };
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * End a provider's pause
         * @description What waits for the provider is tried at once, the first messages as a probe; if they fail, it is paused again.
         *     For Web Push, `origin` names one push service; without it all are resumed. Resuming what is not paused changes
         *     nothing.
         */
        post: operations["resumeProvider"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/pushprovider/providers/{provider}/removals/confirm": {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path: {
                /**
                 * @description The push provider.
                 * @example fcm
                 */
                provider: components["parameters"]["ProviderPath"];
            };
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Confirm the removal of dead tokens
         * @description Removes the tokens that the provider has reported dead and that wait for their removal, also where it was stopped
         *     because they are so many. Whether there are too many is judged anew from then on.
         */
        post: operations["confirmRemovals"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/pushprovider/providers/{provider}/removals/discard": {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path: {
                /**
                 * @description The push provider.
                 * @example fcm
                 */
                provider: components["parameters"]["ProviderPath"];
            };
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Discard reports of dead tokens
         * @description Keeps the tokens that wait for their removal, since the provider's reports were wrong, and ends a stop of removals.
         *     Whether there are too many is judged anew from then on.
         */
        post: operations["discardRemovals"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/pushprovider/dead-letters": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List what could not be delivered
         * @description A page of the groups of devices whose sending was given up, after many attempts or because the provider lacks
         *     something for them, the newest first, with the reason. Repair its cause, then replay them.
         */
        get: operations["listDeadLetters"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/pushprovider/dead-letters/replay": {
        parameters: {
            query?: {
                /** @description Only those of this notification; one that does not exist is a 404. */
                notificationId?: components["parameters"]["OfNotification"];
                /** @description Only those of this push provider. */
                provider?: components["parameters"]["OfProvider"];
            };
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Replay many dead letters
         * @description Replays all dead letters that there are now, or those of a notification, of a provider, or of both. 202 means
         *     that this is stored; it is done in the background, so it takes the same time for one and for a million, and the
         *     list becomes shorter meanwhile. Those whose notification was cancelled or recalled, or is too late by now, stay. Each is
         *     replayed once, so one that is given up again is on the list again; the call can be repeated.
         */
        post: operations["replayAllDeadLetters"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/pushprovider/dead-letters/{id}/replay": {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path: {
                /**
                 * @description Id of the dead letter, from the list.
                 * @example 4711
                 */
                id: components["parameters"]["DeadLetterIdPath"];
            };
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Replay a dead letter
         * @description Queues these devices once more, as if nothing had been tried. 204 means that this is stored; a
         *     notification that was completed goes on. One that was cancelled or recalled, or is too late by now, is a 409.
         */
        post: operations["replayDeadLetter"];
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
        /**
         * Format: uuid
         * @description Id of a notification, a UUID of version 7.
         */
        NotificationId: string;
        /**
         * Format: uuid
         * @description Id of a notification, a UUID; in upper case as well.
         */
        NotificationIdInput: string;
        /** @description Id of a dead letter, an integer as a string. */
        DeadLetterId: string;
        /**
         * @description An ISO 8601 date-time, with or without seconds. UTC (`Z`) is usual; an offset is understood, as
         *     `+03:00`, `+0300` or `+03`.
         * @example 2035-01-20T12:00:00Z
         */
        DateTimeInput: string;
        /**
         * Format: date-time
         * @description An ISO 8601 UTC date-time with milliseconds.
         */
        UtcDateTime: string;
        /**
         * @description A push provider: Firebase Cloud Messaging, Apple Push Notification service, Web Push, or the outbox
         *     of development mode, which keeps what would have been sent.
         * @enum {string}
         */
        ProviderName: "fcm" | "apns" | "webpush" | "outbox";
        /**
         * @description The device's token as the provider gave it to the app, 1 to 4096 printable ASCII characters. `fcm`:
         *     the registration token, letters, digits and `-_:.~+/=%`. `apns`: the device token, 64 to 200
         *     hexadecimal digits. `webpush`: the subscription as JSON, with an endpoint of a push service that the
         *     deployment allows. One that cannot be a token of its provider is refused.
         */
        DeviceToken: string;
        /** @description The push token of a device. */
        PushToken: {
            token: components["schemas"]["DeviceToken"];
            /** @description When the token expires; in the future, however far. */
            expiration: components["schemas"]["DateTimeInput"];
            /** @description The provider of the token, one that the deployment uses (`PUSH_PROVIDERS`). Absent or null means the first of them. */
            provider?: components["schemas"]["ProviderName"] | null;
            /**
             * @description The language of the app on this device, in which it is sent notifications that have a text in it. Absent or
             *     null, a new device has none, and one that is known keeps its own.
             */
            language?: components["schemas"]["LanguageTag"] | null;
            /**
             * @description What the device is. Absent or null means what follows from the provider: `ios` for `apns`, `web` for
             *     `webpush`. FCM reaches all three, so say it there: else filters by platform do not find the device.
             */
            platform?: components["schemas"]["Platform"] | null;
        };
        /**
         * @description A language tag of BCP 47, such as `de`, `pt-BR` or `zh-Hant-TW`, in any case; `_` is read as `-`. It is kept in
         *     its canonical form: `iw` is `he`.
         * @example de-AT
         */
        LanguageTag: string;
        /**
         * @description What a device is.
         * @enum {string}
         */
        Platform: "ios" | "android" | "web";
        /** @description A user, by the `sub` of its access tokens. */
        UserId: string;
        /** @description What to delete: one device, by `token`, or with `all` all devices of the caller. One of the two is needed. */
        PushTokenReference: {
            /** @description The token to delete. Null is as if it were absent. */
            token?: string | null;
            /** @description True to delete all devices of the caller. False and null are as if it were absent. */
            all?: boolean | null;
            /** @description Accepted, since the token was saved with one, and not needed. */
            expiration?: string | null;
        };
        /** @description A notification, and whom it is for. */
        PushNotification: {
            /** @description Title. */
            title: string;
            /** @description Body: 1 to 4000 bytes in UTF-8. Bytes, not characters: what providers take is measured in them. */
            message: string;
            /**
             * @description Image name as it is, such as `promo/summer.jpg` or `акции/летняя распродажа.jpg`: it is encoded when
             *     providers are given its URL below `PUSH_IMAGE_BASE_URL`, and may have at most 1000 bytes then. No
             *     part between slashes may be empty or `.`, `..` may not occur, nor control characters, nor a scheme
             *     such as `https:` at the beginning. An empty name, like null, means no image. Where a provider's
             *     payload of about 4000 bytes has no room for it beside title and message, it is left out.
             */
            image?: string | null;
            /**
             * @description UTC offsets of the recipients. Whoever has a live device at one of them is a recipient. One that is
             *     repeated counts once, also if it is written differently: 5 and 300 are the same.
             */
            utcOffsets: components["schemas"]["UtcOffsetInput"][];
        };
        /** @description A notification, whom it is for, and how it is delivered. */
        NotificationCreation: {
            audience: components["schemas"]["Audience"];
            content: components["schemas"]["NotificationTexts"];
            /** @description Absent or null, all of its members have their defaults. */
            delivery?: components["schemas"]["Delivery"] | null;
        };
        /**
         * @description Whom a notification is for. One of `users`, `personal`, `anyOf` and `everybody` is needed: nothing said is not
         *     everybody. `users` and `exceptUsers` have at most 10,000 ids together.
         */
        Audience: {
            /** @description These users, on all their devices. */
            users?: components["schemas"]["UserId"][] | null;
            /** @description These users, each with the values of the texts' `{{names}}`, in place of everything else in the audience. */
            personal?: components["schemas"]["PersonalRecipient"][] | null;
            /** @description Devices that one of these filters matches. */
            anyOf?: components["schemas"]["DeviceFilter"][] | null;
            /** @description Not the devices that one of these filters matches. */
            except?: components["schemas"]["DeviceFilter"][] | null;
            /** @description Not these users. */
            exceptUsers?: components["schemas"]["UserId"][] | null;
            /** @description True for all devices. */
            everybody?: boolean | null;
        };
        /** @description A user, and the values of the texts' names. */
        PersonalRecipient: {
            user: components["schemas"]["UserId"];
            /**
             * @description A value for each name that the texts hold, in whatever language. A name is a letter, and up to 63 letters,
             *     digits and `_`.
             */
            variables?: {
                [key: string]: string;
            } | null;
        };
        /**
         * @description Matches a device that every member matches, and a member one of whose values does; it has at least one. A device
         *     without a language, or of an unknown platform, matches no filter that asks for one.
         */
        DeviceFilter: {
            /** @description By whole subtags. `de` matches de-AT, `zh-Hant` matches zh-TW, and `de-AT` does not match de. */
            languages?: components["schemas"]["LanguageTag"][] | null;
            /** @description Names in the IANA database, in any case. They match devices that were registered in that zone. */
            timeZones?: string[] | null;
            /** @description Where it is at the moment at which the notification is accepted, as at `/push`. */
            utcOffsets?: components["schemas"]["UtcOffsetInput"][] | null;
            /** @description What the device is. */
            platforms?: components["schemas"]["Platform"][] | null;
        };
        /** @description A text in one language. `{{name}}` is a user's value, where the audience is personal. */
        NotificationText: {
            /** @description Title. */
            title: string;
            /** @description Body: 1 to 4000 bytes in UTF-8. */
            message: string;
        };
        /**
         * @description How a notification may interrupt, as iOS knows it.
         * @enum {string}
         */
        InterruptionLevel: "passive" | "active" | "time-sensitive" | "critical";
        /**
         * @description What becomes of a text that a provider's payload has no room for.
         *     - `shorten`: the image goes first, then the end of the message.
         *     - `refuse`: the call is refused, with a pointer to the text.
         * @enum {string}
         */
        WhenTooLong: "shorten" | "refuse";
        /** @description What a notification says, and what it carries. `texts` are needed unless it is `silent`. */
        NotificationTexts: {
            /** @description The language of devices that no text fits; needed, and not null, where there is more than one. */
            defaultLanguage?: components["schemas"]["LanguageTag"] | null;
            /** @description The texts, by language tag as in `defaultLanguage`. No two of them may be the same language. */
            texts?: {
                [key: string]: components["schemas"]["NotificationText"];
            } | null;
            /**
             * @description Image name, as at `/push`. Where a provider's payload has no room for it beside title and message, it is left
             *     out.
             */
            image?: string | null;
            /** @description Where a tap leads. An https URL, or one with the app's own scheme, such as `myapp://orders/1`. */
            link?: string | null;
            /**
             * @description Strings for the app. A name has 1 to 128 characters, and is none that the platforms keep (`from`,
             *     `message_type`, `collapse_key`, `aps`, and all that begin with `google` or `gcm`) or that this service uses (`link`,
             *     `notificationId`, `messageId`).
             */
            data?: {
                [key: string]: string;
            } | null;
            /** @description A sound of the app. */
            sound?: string | null;
            /** @description The number at the app's icon; 0 removes it on iOS. */
            badge?: number | null;
            /** @description The notification channel (Android). */
            channel?: string | null;
            /** @description The category, whose actions are shown (iOS). */
            category?: string | null;
            /** @description The thread that it is grouped with (iOS). */
            thread?: string | null;
            /** @description How it may interrupt (iOS). Absent or null, iOS decides. */
            interruptionLevel?: components["schemas"]["InterruptionLevel"] | null;
            /**
             * @description True: nothing is shown, and the app is woken to handle `data`. It has no texts and nothing else that is shown,
             *     and no history entry. Web Push cannot do it, so devices of the web are not sent to.
             */
            silent?: boolean | null;
            /** @description Absent or null, `shorten`. */
            tooLong?: components["schemas"]["WhenTooLong"] | null;
        };
        /**
         * @description - `high`: devices are woken for it.
         *     - `normal`: it may wait until a device is awake.
         * @enum {string}
         */
        DeliveryPriority: "high" | "normal";
        /** @description How a notification is delivered. */
        Delivery: {
            /** @description Absent or null, `high`. */
            priority?: components["schemas"]["DeliveryPriority"] | null;
            /** @description Seconds after which it is not sent any more. Absent or null, the setting PUSH_TTL_SECONDS. */
            ttlSeconds?: number | null;
            /**
             * @description On a device it replaces an earlier notification with the same id, of 1 to 64 bytes in UTF-8. Absent or null,
             *     its own id.
             */
            collapseId?: string | null;
            /** @description Messages a second at most, over all processes. The provider's own limit holds as well. */
            maxPerSecond?: number | null;
            /** @description Whether users find it in their history. Absent or null, they do. */
            history?: boolean | null;
        };
        /** @description Something that the caller may not have meant. */
        NotificationWarning: {
            /** @description JSON pointer into the request. */
            pointer: string;
            /** @description What, in words. */
            message: string;
        };
        /** @description A notification that is stored. */
        CreatedNotification: {
            id: components["schemas"]["NotificationId"];
            /** @description What the caller may not have meant; mostly nothing. */
            warnings: components["schemas"]["NotificationWarning"][];
        };
        /** @description Who would get a notification, and what. */
        NotificationPreview: {
            /**
             * Format: int64
             * @description Users; null where the audience has filters or is everybody.
             */
            users: number | null;
            /**
             * Format: int64
             * @description Devices.
             */
            devices: number;
            /** @description True where devices were counted in samples, not one by one. */
            isEstimate: boolean;
            /** @description The devices, by provider, language of the text and platform. */
            breakdown: components["schemas"]["PreviewShare"][];
            /** @description Devices and users that are left out, by the reason. */
            excluded: components["schemas"]["ExcludedShare"][];
            /** @description The size of each payload. */
            payloads: components["schemas"]["PayloadSize"][];
            /**
             * Format: date-time
             * @description When it would all be sent, at the rate limits of now; null where no limit says so. The ramp at the beginning
             *     is not counted, which adds half of PUSH_RAMP_SECONDS at most.
             */
            finishesAt: string | null;
            /** @description What the caller may not have meant; mostly nothing. */
            warnings: components["schemas"]["NotificationWarning"][];
        };
        /** @description A part of the devices. */
        PreviewShare: {
            provider: components["schemas"]["ProviderName"];
            /** @description The text that they are sent; null in a silent notification. */
            language: string | null;
            /** @description What they are; null where that is unknown. */
            platform: string | null;
            /**
             * Format: int64
             * @description Devices.
             */
            devices: number;
        };
        /**
         * @description - `EXCEPT`: a filter of `except`, or `exceptUsers`, matches.
         *     - `NO_DEVICE`: users among those named who have no device; `devices` counts users then.
         *     - `SILENT_WEB`: a silent notification cannot be sent to the web.
         * @enum {string}
         */
        ExclusionReason: "EXCEPT" | "NO_DEVICE" | "SILENT_WEB";
        /** @description What is left out for one reason. */
        ExcludedShare: {
            reason: components["schemas"]["ExclusionReason"];
            /**
             * Format: int64
             * @description How many.
             */
            devices: number;
        };
        /** @description The size of a provider's payload in one language, with the longest values of variables. */
        PayloadSize: {
            provider: components["schemas"]["ProviderName"];
            /** @description The language; null in a silent notification. */
            language: string | null;
            /** @description Bytes, as the provider counts them. */
            bytes: number;
            /** @description Bytes that it takes. */
            limit: number;
            /** @description Whether the text was shortened to fit. */
            isShortened: boolean;
        };
        /**
         * @description - `SENT`: the provider has taken it.
         *     - `FAILED`: the provider refused it, or reported the device dead.
         *     - `DROPPED`: it expired, was cancelled, or the device was removed or changed its user.
         *     - `DEAD_LETTERED`: it was given up, and an operator may replay it.
         * @enum {string}
         */
        MessageOutcome: "SENT" | "FAILED" | "DROPPED" | "DEAD_LETTERED";
        /** @description What became of one device. */
        RecipientOutcome: {
            /** @description The user. */
            user: string;
            provider: components["schemas"]["ProviderName"];
            outcome: components["schemas"]["MessageOutcome"];
            /** @description The provider's reason; null where it was sent. */
            reason: string | null;
            at: components["schemas"]["UtcDateTime"];
        };
        /** @description A page of devices and their outcomes. */
        RecipientsPage: {
            /** @description Devices of the page. */
            content: components["schemas"]["RecipientOutcome"][];
            /** @description Number of the page. */
            number: number;
            /** @description Devices on a full page. */
            size: number;
            /**
             * Format: int64
             * @description Devices on all pages.
             */
            totalElements: number;
        };
        /** @description Hours east of UTC from -12 to 14; any other integer is minutes, a multiple of 15 from -720 to 840. */
        UtcOffsetInput: number;
        /** @description Minutes east of UTC. */
        UtcOffset: number;
        /** @description What a notification says. */
        NotificationContent: {
            /** @description Title. */
            title: string;
            /** @description Body. */
            message: string;
            /** @description Image name. */
            image: string | null;
        };
        /** @description A notification that a user was sent. */
        HistoryEntry: {
            id: components["schemas"]["NotificationId"];
            /** @description The user. */
            userId: string;
            /** @description Whether the user has seen it. */
            viewed: boolean;
            notification: components["schemas"]["NotificationContent"];
            /** @description Where a tap leads; absent where nothing was said. */
            link?: string;
            /** @description Strings for the app; absent where it has none. */
            data?: {
                [key: string]: string;
            };
            /** @description When it was accepted for sending. */
            sendAt: components["schemas"]["UtcDateTime"];
        };
        /** @description A page of a user's notifications. */
        HistoryPage: {
            /** @description Entries of the page. */
            content: components["schemas"]["HistoryEntry"][];
            /** @description Number of the page. */
            number: number;
            /** @description Entries on a full page. */
            size: number;
            /**
             * Format: int64
             * @description Entries on all pages.
             */
            totalElements: number;
        };
        /** @description Whether anything is unread. */
        NotificationsSummary: {
            /** @description True when all are viewed, false when at least one is unread. */
            viewed: boolean;
        };
        /**
         * @description Where a notification stands.
         *
         *     - `PLANNING`: its recipients are being found; it goes out to those that have been.
         *     - `SENDING`: all recipients have been found; it goes out to them.
         *     - `PAUSED`: an operator has paused it; nothing goes out.
         *     - `COMPLETED`: nothing is left to be sent.
         *     - `CANCELLED`: an operator has cancelled it; what had not gone out was dropped.
         * @enum {string}
         */
        NotificationState: "PLANNING" | "SENDING" | "PAUSED" | "COMPLETED" | "CANCELLED";
        /** @description The part of a progress that belongs to one offset and one provider. */
        ProgressShare: {
            utcOffset: components["schemas"]["UtcOffset"];
            provider: components["schemas"]["ProviderName"];
            /**
             * Format: int64
             * @description Devices that have been found.
             */
            planned: number;
            /**
             * Format: int64
             * @description Devices for which the provider has taken it.
             */
            sent: number;
            /**
             * Format: int64
             * @description Devices for which the provider refused it, or which it reported dead.
             */
            failed: number;
            /**
             * Format: int64
             * @description Devices that expired, were removed or changed their user after they were found, or that it was
             *     cancelled or too late for.
             */
            dropped: number;
            /**
             * Format: int64
             * @description Devices in dead letters, which an operator may replay.
             */
            deadLettered: number;
            /**
             * Format: int64
             * @description Devices still to be sent to.
             */
            remaining: number;
        };
        /**
         * @description A notification and what has become of it. The counts are of devices; they grow while recipients are
         *     being found.
         */
        NotificationProgress: {
            id: components["schemas"]["NotificationId"];
            /** @description Title. */
            title: string;
            /** @description Body. */
            message: string;
            /** @description Image name. */
            image: string | null;
            /** @description Whether it is a test run. */
            test: boolean;
            state: components["schemas"]["NotificationState"];
            /** @description When it was accepted. */
            acceptedAt: components["schemas"]["UtcDateTime"];
            /**
             * Format: date-time
             * @description When nothing was left to be sent; null before.
             */
            completedAt: string | null;
            /**
             * Format: date-time
             * @description When an operator recalled it from the history; null unless one has.
             */
            recalledAt: string | null;
            /**
             * @description Whether so many of its devices were reported dead that they are no longer removed: an operator
             *     should look into it.
             */
            removalStopped: boolean;
            /** @description What an operator should know of it, in a sentence; absent where there is nothing to say. */
            notice?: string;
            /**
             * Format: int64
             * @description Users that it is for.
             */
            recipients: number;
            /**
             * Format: int64
             * @description Devices that have been found.
             */
            planned: number;
            /**
             * Format: int64
             * @description Devices for which the provider has taken it.
             */
            sent: number;
            /**
             * Format: int64
             * @description Devices for which the provider refused it, or which it reported dead.
             */
            failed: number;
            /**
             * Format: int64
             * @description Devices that expired, were removed or changed their user after they were found, or that it was
             *     cancelled or too late for.
             */
            dropped: number;
            /**
             * Format: int64
             * @description Devices in dead letters, which an operator may replay.
             */
            deadLettered: number;
            /**
             * Format: int64
             * @description Devices still to be sent to.
             */
            remaining: number;
            /** @description The same counts by offset and provider. */
            breakdown: components["schemas"]["ProgressShare"][];
        };
        /** @description A page of notifications. */
        NotificationsPage: {
            /** @description Notifications of the page. */
            content: components["schemas"]["NotificationProgress"][];
            /** @description Number of the page. */
            number: number;
            /** @description Notifications on a full page. */
            size: number;
            /**
             * Format: int64
             * @description Notifications on all pages.
             */
            totalElements: number;
        };
        /** @description A reason for which messages failed. */
        FailureReason: {
            provider: components["schemas"]["ProviderName"];
            /** @description A status and the provider's error code, or a few words. */
            reason: string;
            /**
             * Format: int64
             * @description Devices whose message failed for it.
             */
            devices: number;
        };
        /** @description Why messages of a notification failed. */
        FailuresList: {
            /** @description The reasons, the most frequent first. */
            content: components["schemas"]["FailureReason"][];
        };
        /**
         * @description Whether messages are sent.
         *
         *     - `OPEN`: they are.
         *     - `UNAVAILABLE`: paused, as the provider fails, cannot be reached, or is over quota.
         *     - `REFUSED`: paused, as the provider refuses our credentials, project, topic or key.
         *     - `PROBING`: the pause is over, and the next messages show whether the provider works.
         * @enum {string}
         */
        ProviderState: "OPEN" | "UNAVAILABLE" | "REFUSED" | "PROBING";
        /** @description A push service of Web Push that was paused before. */
        ProviderOrigin: {
            /** @description Its origin. */
            origin: string;
            state: components["schemas"]["ProviderState"];
            /** @description The response for which it is paused; null where it is open. */
            reason: string | null;
            /** @description Since when it is in this state. */
            since: components["schemas"]["UtcDateTime"];
            /**
             * Format: date-time
             * @description When it is tried again; null where it is not paused.
             */
            pausedUntil: string | null;
        };
        /** @description The removal of tokens that the provider has reported dead. */
        ProviderRemovals: {
            /**
             * Format: date-time
             * @description Since when no token is removed, as too many were reported dead; null where they are removed.
             */
            heldSince: string | null;
            /**
             * Format: int64
             * @description Tokens that wait for their removal.
             */
            waiting: number;
        };
        /** @description A push provider and its state. */
        Provider: {
            provider: components["schemas"]["ProviderName"];
            state: components["schemas"]["ProviderState"];
            /** @description The response for which it is paused; null where it is open. */
            reason: string | null;
            /**
             * Format: date-time
             * @description Since when it is in this state; null where it was never in another one.
             */
            since: string | null;
            /**
             * Format: date-time
             * @description When it is tried again; null where it is not paused.
             */
            pausedUntil: string | null;
            /** @description Web Push: the push services that were paused before. Each is paused by itself. */
            origins: components["schemas"]["ProviderOrigin"][];
            removals: components["schemas"]["ProviderRemovals"];
        };
        /** @description The push providers of this deployment. */
        ProvidersList: {
            /** @description The providers. */
            content: components["schemas"]["Provider"][];
        };
        /** @description Devices of one notification whose sending was given up. */
        DeadLetter: {
            id: components["schemas"]["DeadLetterId"];
            notificationId: components["schemas"]["NotificationId"];
            provider: components["schemas"]["ProviderName"];
            utcOffset: components["schemas"]["UtcOffset"];
            /**
             * Format: int64
             * @description How many devices.
             */
            devices: number;
            /** @description The last response for which it was given up, such as `500 INTERNAL`. */
            reason: string;
            /** @description When it was given up. */
            since: components["schemas"]["UtcDateTime"];
        };
        /** @description A page of dead letters. */
        DeadLettersPage: {
            /** @description Dead letters of the page. */
            content: components["schemas"]["DeadLetter"][];
            /** @description Number of the page. */
            number: number;
            /** @description Dead letters on a full page. */
            size: number;
            /**
             * Format: int64
             * @description Dead letters on all pages.
             */
            totalElements: number;
        };
        /** @description An error (RFC 9457). */
        Problem: {
            /**
             * Format: uri-reference
             * @description A URI reference that names the kind of problem; `about:blank` where the title says it all.
             */
            type: string;
            /** @description The kind of problem in words. */
            title: string;
            /** @description The HTTP status. */
            status: number;
            /** @description What is wrong here, and what to do. */
            detail: string;
            code: components["schemas"]["ProblemCode"];
            /** @description Names the request in the logs. */
            requestId: string;
            /** @description What is wrong with the input, place by place. */
            errors?: components["schemas"]["ProblemError"][];
        };
        /** @description Something wrong at one place of the input. */
        ProblemError: {
            /** @description JSON pointer into the request, beginning with /body, /path, /query or /header. */
            pointer: string;
            /** @description What is wrong there. */
            message: string;
        };
        /**
         * @description The closed list of problem codes, of the auth service and the push service together.
         * @enum {string}
         */
        ProblemCode: "invalid_request" | "unauthenticated" | "forbidden" | "not_found" | "identity_not_found" | "notification_not_found" | "dead_letter_not_found" | "method_not_allowed" | "not_acceptable" | "identity_id_taken" | "identity_phone_taken" | "identity_email_taken" | "idempotency_key_reused" | "notification_finished" | "content_too_large" | "unsupported_media_type" | "too_many_requests" | "internal_error" | "unavailable";
    };
    responses: {
        /** @description Done. */
        NoContent: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                [name: string]: unknown;
            };
            content?: never;
        };
        /** @description The notification and its progress. */
        Progress: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                "Cache-Control": components["headers"]["NoStore"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["NotificationProgress"];
            };
        };
        /** @description The provider and its state. */
        ProviderStatus: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                "Cache-Control": components["headers"]["NoStore"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["Provider"];
            };
        };
        /** @description This deployment does not use this provider. */
        ProviderNotFound: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description The input is not valid; `errors` names each place. */
        BadRequest: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description The access token is missing, malformed, expired or revoked. */
        Unauthorized: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                "WWW-Authenticate": components["headers"]["BearerChallenge"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description The access token is a good one, of an application that may not do this. */
        Forbidden: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                "WWW-Authenticate": components["headers"]["BearerChallenge"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description There is no such notification. */
        NotificationNotFound: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description There is no such dead letter; it may have been replayed. */
        DeadLetterNotFound: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description The idempotency key was used for another notification. */
        KeyReused: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description The notification has ended; `detail` says how. */
        NotificationFinished: {
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
        /** @description The Accept header rules out JSON. */
        NotAcceptable: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description The body is over 64 KiB. */
        ContentTooLarge: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description The body's media type is not one of the operation's, or the body is compressed or in another charset than UTF-8. */
        UnsupportedMediaType: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description The user's devices are saved too often. */
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
        /** @description Something went wrong inside. Nothing is said but the request id. */
        InternalServerError: {
            headers: {
                "X-Request-Id": components["headers"]["X-Request-Id"];
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description A service that this one depends on does not answer, or more requests arrive than can be answered. */
        ServiceUnavailable: {
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
    parameters: {
        /**
         * @description Id of the notification, as `Notification-Id` said.
         * @example 019aa4b1-9d3c-7a52-8c11-5be0a1f6d201
         */
        NotificationIdPath: components["schemas"]["NotificationIdInput"];
        /**
         * @description Id of the dead letter, from the list.
         * @example 4711
         */
        DeadLetterIdPath: components["schemas"]["DeadLetterId"];
        /**
         * @description The push provider.
         * @example fcm
         */
        ProviderPath: components["schemas"]["ProviderName"];
        /** @description Only those of this notification; one that does not exist is a 404. */
        OfNotification: components["schemas"]["NotificationIdInput"];
        /** @description Only those of this push provider. */
        OfProvider: components["schemas"]["ProviderName"];
        /** @description Names this send, so that it can be repeated safely; a UUID, for example. */
        IdempotencyKey: string;
        /** @description The languages of the reader (RFC 9110, section 12.5.4), such as `de-AT, en;q=0.5`. */
        AcceptLanguage: string;
        /** @description Number of the page; the first is 0. */
        PageNumber: number;
        /** @description Entries on a page, at most 100. More are cut to 100, and `size` in the answer says so. */
        PageSize: number;
        /**
         * @description Fields, and after them a direction for all of them, ascending unless it says otherwise: `viewed`,
         *     `sendAt,desc`, `viewed,sendAt,desc`, in any case. Repeat it to sort by several in different directions,
         *     the first one first; what is equal then is in the order of the ids, in the direction of the last
         *     field. An empty one counts as absent. Without it: `sendAt,desc`. By `viewed`, an entry that was marked
         *     keeps its place among the unread for ten minutes, so that marking page by page skips none.
         */
        HistorySort: string[];
        /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
        RequestId: string;
        /** @description W3C trace context; logged, and passed on to the services that are called. */
        TraceParent: string;
    };
    requestBodies: never;
    headers: {
        /**
         * @description Names this request in the logs.
         * @example 0c6d3e2a
         */
        "X-Request-Id": string;
        /**
         * @description Id of the notification, a UUID.
         * @example 019aa4b1-9d3c-7a52-8c11-5be0a1f6d201
         */
        NotificationIdHeader: components["schemas"]["NotificationId"];
        /**
         * @description Where the notification and its progress are read, a path of this service.
         * @example /api/push-orchestration/v1/pushprovider/notifications/019aa4b1-9d3c-7a52-8c11-5be0a1f6d201
         */
        Location: string;
        /**
         * @description The response is not to be kept.
         * @example no-store
         */
        NoStore: "no-store";
        /**
         * @description The scheme that is expected, and what is wrong with the token that was sent (RFC 6750 section 3).
         * @example Bearer realm="gatepost", error="invalid_token"
         */
        BearerChallenge: string;
        /**
         * @description The methods of this path.
         * @example GET, HEAD, OPTIONS
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
    savePushToken: {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
                /**
                 * @description Where the user is, in one of these forms:
                 *
                 *     - An integer, as in the list of recipients: hours from -12 to 14, such as `3`; else minutes, a
                 *       multiple of 15 from -720 to 840, such as `330`.
                 *     - Hours and minutes, from `-12:00` to `+14:00` in steps of 15 minutes: `+03:00`, `+3:00`, `03:00`,
                 *       `+0300`, `+03`; with a sign also after `UTC` or `GMT`: `UTC+3`, `GMT+03:00`. `Z`, `UTC0` and `GMT0` are UTC.
                 *     - The name of a time zone in the IANA database, in any case: `Europe/Berlin`. The zone is kept, so
                 *       that summer time needs no further call. A name that is unknown is a 400.
                 *
                 *     Where it is absent, a new device is at UTC and one that is known stays where it was.
                 */
                "barrier-user-utc-offset"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["PushToken"];
            };
        };
        responses: {
            204: components["responses"]["NoContent"];
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            405: components["responses"]["MethodNotAllowed"];
            413: components["responses"]["ContentTooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            429: components["responses"]["TooManyRequests"];
            500: components["responses"]["InternalServerError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    deletePushToken: {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["PushTokenReference"];
            };
        };
        responses: {
            /** @description Done. */
            204: {
                headers: {
                    "X-Request-Id": components["headers"]["X-Request-Id"];
                    /**
                     * @description Only where the request had no body: since when that is deprecated, in seconds since 1970 after
                     *     an `@` (RFC 9745).
                     * @example @1795305600
                     */
                    Deprecation?: string;
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            405: components["responses"]["MethodNotAllowed"];
            413: components["responses"]["ContentTooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            500: components["responses"]["InternalServerError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    startTestNotifications: {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A test run has started, or was started less than a minute ago. */
            202: {
                headers: {
                    "X-Request-Id": components["headers"]["X-Request-Id"];
                    [name: string]: unknown;
                };
                content?: never;
            };
            405: components["responses"]["MethodNotAllowed"];
            500: components["responses"]["InternalServerError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    sendPushNotification: {
        parameters: {
            query?: never;
            header?: {
                /** @description Names this send, so that it can be repeated safely; a UUID, for example. */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["PushNotification"];
            };
        };
        responses: {
            /** @description The notification is stored, and goes out. */
            204: {
                headers: {
                    "X-Request-Id": components["headers"]["X-Request-Id"];
                    "Notification-Id": components["headers"]["NotificationIdHeader"];
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            405: components["responses"]["MethodNotAllowed"];
            409: components["responses"]["KeyReused"];
            413: components["responses"]["ContentTooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            500: components["responses"]["InternalServerError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    getNotificationsHistory: {
        parameters: {
            query?: {
                /** @description Whether to mark the returned entries as viewed. */
                markViewed?: boolean;
                /** @description Number of the page; the first is 0. */
                page?: components["parameters"]["PageNumber"];
                /** @description Entries on a page, at most 100. More are cut to 100, and `size` in the answer says so. */
                size?: components["parameters"]["PageSize"];
                /**
                 * @description Fields, and after them a direction for all of them, ascending unless it says otherwise: `viewed`,
                 *     `sendAt,desc`, `viewed,sendAt,desc`, in any case. Repeat it to sort by several in different directions,
                 *     the first one first; what is equal then is in the order of the ids, in the direction of the last
                 *     field. An empty one counts as absent. Without it: `sendAt,desc`. By `viewed`, an entry that was marked
                 *     keeps its place among the unread for ten minutes, so that marking page by page skips none.
                 */
                sort?: components["parameters"]["HistorySort"];
            };
            header?: {
                /** @description The languages of the reader (RFC 9110, section 12.5.4), such as `de-AT, en;q=0.5`. */
                "Accept-Language"?: components["parameters"]["AcceptLanguage"];
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The page; beyond the last entry it is empty. */
            200: {
                headers: {
                    "X-Request-Id": components["headers"]["X-Request-Id"];
                    "Cache-Control": components["headers"]["NoStore"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HistoryPage"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            405: components["responses"]["MethodNotAllowed"];
            406: components["responses"]["NotAcceptable"];
            500: components["responses"]["InternalServerError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    getNotificationsSummary: {
        parameters: {
            query?: {
                /** @description Number of the page; the first is 0. */
                page?: components["parameters"]["PageNumber"];
                /** @description Entries on a page, at most 100. More are cut to 100, and `size` in the answer says so. */
                size?: components["parameters"]["PageSize"];
                /**
                 * @description Fields, and after them a direction for all of them, ascending unless it says otherwise: `viewed`,
                 *     `sendAt,desc`, `viewed,sendAt,desc`, in any case. Repeat it to sort by several in different directions,
                 *     the first one first; what is equal then is in the order of the ids, in the direction of the last
                 *     field. An empty one counts as absent. Without it: `sendAt,desc`. By `viewed`, an entry that was marked
                 *     keeps its place among the unread for ten minutes, so that marking page by page skips none.
                 */
                sort?: components["parameters"]["HistorySort"];
            };
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The summary. */
            200: {
                headers: {
                    "X-Request-Id": components["headers"]["X-Request-Id"];
                    "Cache-Control": components["headers"]["NoStore"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["NotificationsSummary"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            405: components["responses"]["MethodNotAllowed"];
            406: components["responses"]["NotAcceptable"];
            500: components["responses"]["InternalServerError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    listNotifications: {
        parameters: {
            query?: {
                /**
                 * @description The `Idempotency-Key` of a send of this client, as long as it is remembered; without one that is, the page
                 *     is empty.
                 */
                idempotencyKey?: string;
                /**
                 * @description The state that notifications must be in; repeat it for several. Those that have not ended are
                 *     `state=PLANNING&state=SENDING&state=PAUSED`, which are found at once, however many have ended.
                 */
                state?: components["schemas"]["NotificationState"][];
                /** @description Number of the page; the first is 0. */
                page?: components["parameters"]["PageNumber"];
                /** @description Entries on a page, at most 100. More are cut to 100, and `size` in the answer says so. */
                size?: components["parameters"]["PageSize"];
            };
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The page; beyond the last notification it is empty. */
            200: {
                headers: {
                    "X-Request-Id": components["headers"]["X-Request-Id"];
                    "Cache-Control": components["headers"]["NoStore"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["NotificationsPage"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            405: components["responses"]["MethodNotAllowed"];
            406: components["responses"]["NotAcceptable"];
            500: components["responses"]["InternalServerError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    createNotification: {
        parameters: {
            query?: never;
            header?: {
                /** @description Names this send, so that it can be repeated safely; a UUID, for example. */
                "Idempotency-Key"?: components["parameters"]["IdempotencyKey"];
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NotificationCreation"];
            };
        };
        responses: {
            /** @description The notification is stored, and goes out. */
            201: {
                headers: {
                    "X-Request-Id": components["headers"]["X-Request-Id"];
                    "Notification-Id": components["headers"]["NotificationIdHeader"];
                    Location: components["headers"]["Location"];
                    "Cache-Control": components["headers"]["NoStore"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CreatedNotification"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            405: components["responses"]["MethodNotAllowed"];
            406: components["responses"]["NotAcceptable"];
            409: components["responses"]["KeyReused"];
            413: components["responses"]["ContentTooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            500: components["responses"]["InternalServerError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    previewNotification: {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NotificationCreation"];
            };
        };
        responses: {
            /** @description What would be sent. */
            200: {
                headers: {
                    "X-Request-Id": components["headers"]["X-Request-Id"];
                    "Cache-Control": components["headers"]["NoStore"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["NotificationPreview"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            405: components["responses"]["MethodNotAllowed"];
            406: components["responses"]["NotAcceptable"];
            413: components["responses"]["ContentTooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            500: components["responses"]["InternalServerError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    listRecipients: {
        parameters: {
            query?: {
                /** @description Number of the page; the first is 0. */
                page?: components["parameters"]["PageNumber"];
                /** @description Entries on a page, at most 100. More are cut to 100, and `size` in the answer says so. */
                size?: components["parameters"]["PageSize"];
            };
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path: {
                /**
                 * @description Id of the notification, as `Notification-Id` said.
                 * @example 019aa4b1-9d3c-7a52-8c11-5be0a1f6d201
                 */
                id: components["parameters"]["NotificationIdPath"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The page; beyond the last device it is empty. */
            200: {
                headers: {
                    "X-Request-Id": components["headers"]["X-Request-Id"];
                    "Cache-Control": components["headers"]["NoStore"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RecipientsPage"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotificationNotFound"];
            405: components["responses"]["MethodNotAllowed"];
            406: components["responses"]["NotAcceptable"];
            500: components["responses"]["InternalServerError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    getNotification: {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path: {
                /**
                 * @description Id of the notification, as `Notification-Id` said.
                 * @example 019aa4b1-9d3c-7a52-8c11-5be0a1f6d201
                 */
                id: components["parameters"]["NotificationIdPath"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: components["responses"]["Progress"];
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotificationNotFound"];
            405: components["responses"]["MethodNotAllowed"];
            406: components["responses"]["NotAcceptable"];
            500: components["responses"]["InternalServerError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    pauseNotification: {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path: {
                /**
                 * @description Id of the notification, as `Notification-Id` said.
                 * @example 019aa4b1-9d3c-7a52-8c11-5be0a1f6d201
                 */
                id: components["parameters"]["NotificationIdPath"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: components["responses"]["Progress"];
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotificationNotFound"];
            405: components["responses"]["MethodNotAllowed"];
            406: components["responses"]["NotAcceptable"];
            409: components["responses"]["NotificationFinished"];
            500: components["responses"]["InternalServerError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    resumeNotification: {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path: {
                /**
                 * @description Id of the notification, as `Notification-Id` said.
                 * @example 019aa4b1-9d3c-7a52-8c11-5be0a1f6d201
                 */
                id: components["parameters"]["NotificationIdPath"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: components["responses"]["Progress"];
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotificationNotFound"];
            405: components["responses"]["MethodNotAllowed"];
            406: components["responses"]["NotAcceptable"];
            409: components["responses"]["NotificationFinished"];
            500: components["responses"]["InternalServerError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    cancelNotification: {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path: {
                /**
                 * @description Id of the notification, as `Notification-Id` said.
                 * @example 019aa4b1-9d3c-7a52-8c11-5be0a1f6d201
                 */
                id: components["parameters"]["NotificationIdPath"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: components["responses"]["Progress"];
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotificationNotFound"];
            405: components["responses"]["MethodNotAllowed"];
            406: components["responses"]["NotAcceptable"];
            409: components["responses"]["NotificationFinished"];
            500: components["responses"]["InternalServerError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    recallNotification: {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path: {
                /**
                 * @description Id of the notification, as `Notification-Id` said.
                 * @example 019aa4b1-9d3c-7a52-8c11-5be0a1f6d201
                 */
                id: components["parameters"]["NotificationIdPath"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: components["responses"]["Progress"];
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotificationNotFound"];
            405: components["responses"]["MethodNotAllowed"];
            406: components["responses"]["NotAcceptable"];
            500: components["responses"]["InternalServerError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    listFailures: {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path: {
                /**
                 * @description Id of the notification, as `Notification-Id` said.
                 * @example 019aa4b1-9d3c-7a52-8c11-5be0a1f6d201
                 */
                id: components["parameters"]["NotificationIdPath"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The reasons; none where nothing failed. */
            200: {
                headers: {
                    "X-Request-Id": components["headers"]["X-Request-Id"];
                    "Cache-Control": components["headers"]["NoStore"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["FailuresList"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotificationNotFound"];
            405: components["responses"]["MethodNotAllowed"];
            406: components["responses"]["NotAcceptable"];
            500: components["responses"]["InternalServerError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    listProviders: {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The providers, the default one first. */
            200: {
                headers: {
                    "X-Request-Id": components["headers"]["X-Request-Id"];
                    "Cache-Control": components["headers"]["NoStore"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ProvidersList"];
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            405: components["responses"]["MethodNotAllowed"];
            406: components["responses"]["NotAcceptable"];
            500: components["responses"]["InternalServerError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    resumeProvider: {
        parameters: {
            query?: {
                /** @description The origin of a push service, as in `origins`, such as `https://updates.push.services.mozilla.com`. */
                origin?: string;
            };
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path: {
                /**
                 * @description The push provider.
                 * @example fcm
                 */
                provider: components["parameters"]["ProviderPath"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: components["responses"]["ProviderStatus"];
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["ProviderNotFound"];
            405: components["responses"]["MethodNotAllowed"];
            406: components["responses"]["NotAcceptable"];
            500: components["responses"]["InternalServerError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    confirmRemovals: {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path: {
                /**
                 * @description The push provider.
                 * @example fcm
                 */
                provider: components["parameters"]["ProviderPath"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: components["responses"]["ProviderStatus"];
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["ProviderNotFound"];
            405: components["responses"]["MethodNotAllowed"];
            406: components["responses"]["NotAcceptable"];
            500: components["responses"]["InternalServerError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    discardRemovals: {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path: {
                /**
                 * @description The push provider.
                 * @example fcm
                 */
                provider: components["parameters"]["ProviderPath"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: components["responses"]["ProviderStatus"];
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["ProviderNotFound"];
            405: components["responses"]["MethodNotAllowed"];
            406: components["responses"]["NotAcceptable"];
            500: components["responses"]["InternalServerError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    listDeadLetters: {
        parameters: {
            query?: {
                /** @description Number of the page; the first is 0. */
                page?: components["parameters"]["PageNumber"];
                /** @description Entries on a page, at most 100. More are cut to 100, and `size` in the answer says so. */
                size?: components["parameters"]["PageSize"];
            };
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The page; beyond the last dead letter it is empty. */
            200: {
                headers: {
                    "X-Request-Id": components["headers"]["X-Request-Id"];
                    "Cache-Control": components["headers"]["NoStore"];
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DeadLettersPage"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            405: components["responses"]["MethodNotAllowed"];
            406: components["responses"]["NotAcceptable"];
            500: components["responses"]["InternalServerError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    replayAllDeadLetters: {
        parameters: {
            query?: {
                /** @description Only those of this notification; one that does not exist is a 404. */
                notificationId?: components["parameters"]["OfNotification"];
                /** @description Only those of this push provider. */
                provider?: components["parameters"]["OfProvider"];
            };
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description They are replayed in the background. */
            202: {
                headers: {
                    "X-Request-Id": components["headers"]["X-Request-Id"];
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotificationNotFound"];
            405: components["responses"]["MethodNotAllowed"];
            500: components["responses"]["InternalServerError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
    replayDeadLetter: {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the request in the logs and in the answer; made when absent or not 1 to 128 visible ASCII characters. */
                "X-Request-Id"?: components["parameters"]["RequestId"];
                /** @description W3C trace context; logged, and passed on to the services that are called. */
                traceparent?: components["parameters"]["TraceParent"];
            };
            path: {
                /**
                 * @description Id of the dead letter, from the list.
                 * @example 4711
                 */
                id: components["parameters"]["DeadLetterIdPath"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            204: components["responses"]["NoContent"];
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["DeadLetterNotFound"];
            405: components["responses"]["MethodNotAllowed"];
            409: components["responses"]["NotificationFinished"];
            500: components["responses"]["InternalServerError"];
            503: components["responses"]["ServiceUnavailable"];
        };
    };
}
