//! tonic over native gRPC: introspection, a notification to one user, and the progress of notifications. The rest of the walk is done over HTTP.
use anyhow::{Context, Result};
use gatepost_client::walk::{Client, Introspected, ORDER, Progress, Transport, environment, walk};
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use uuid::Uuid;

mod auth {
    tonic::include_proto!("auth.v1");
}
mod push {
    tonic::include_proto!("push.v1");
}

use auth::introspection_service_client::IntrospectionServiceClient;
use push::delivery_service_client::DeliveryServiceClient;
use push::notification_service_client::NotificationServiceClient;

struct Grpc {
    channel: Channel,
    /// The credentials of a resource server.
    authorization: String,
}

/// A request with credentials in its metadata.
fn request<T>(message: T, authorization: &str) -> Result<tonic::Request<T>> {
    let mut request = tonic::Request::new(message);
    request.metadata_mut().insert("authorization", MetadataValue::try_from(authorization)?);
    Ok(request)
}

impl Transport for Grpc {
    async fn introspect(&self, token: &str) -> Result<Introspected> {
        let message = auth::IntrospectRequest { token: token.into(), ..Default::default() };
        let mut client = IntrospectionServiceClient::new(self.channel.clone());
        let response = client.introspect(request(message, &self.authorization)?).await?.into_inner();
        let present = |text: String| Some(text).filter(|text| !text.is_empty());
        Ok(Introspected {
            active: response.active,
            sub: present(response.sub),
            client_id: present(response.client_id),
        })
    }

    /// Watches until the stream ends by itself.
    async fn progress(&self, operator: &str, id: Uuid) -> Result<Progress> {
        let message = push::WatchProgressRequest { notification_id: id.to_string() };
        let mut client = DeliveryServiceClient::new(self.channel.clone());
        let authorized = request(message, &format!("Bearer {operator}"))?;
        let mut stream = client.watch_progress(authorized).await?.into_inner();
        let mut last = None;
        while let Some(response) = stream.message().await? {
            last = response.progress;
        }
        let progress = last.context("the stream was empty")?;
        let completed = progress.state() == push::NotificationState::Completed;
        Ok(Progress { completed, sent: progress.sent.into() })
    }

    async fn create(&self, operator: &str, user: &str) -> Result<Uuid> {
        let text = push::NotificationText { title: "On its way".into(), message: "It comes tomorrow.".into() };
        let message = push::CreateNotificationRequest {
            audience: Some(push::Audience { users: vec![user.into()], ..Default::default() }),
            content: Some(push::NotificationTexts {
                texts: [("en".to_string(), text)].into(),
                data: [(ORDER.0.to_string(), ORDER.1.to_string())].into(),
                ..Default::default()
            }),
            delivery: None,
        };
        let mut client = NotificationServiceClient::new(self.channel.clone());
        let response = client.create_notification(request(message, &format!("Bearer {operator}"))?).await?;
        Ok(response.into_inner().id.parse()?)
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let client = Client::from_environment()?;
    let channel = Channel::from_shared(format!("http://{}", environment("GATEPOST_GRPC")?))?.connect().await?;
    let grpc = Grpc { channel, authorization: client.api_authorization() };
    walk(&client, &grpc).await
}
