//! Asks whose access token `ACCESS_TOKEN` is.
use std::env;

use anyhow::Result;
use base64::{Engine, prelude::BASE64_STANDARD};
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;

mod auth {
    tonic::include_proto!("auth.v1");
}

use auth::introspection_service_client::IntrospectionServiceClient;

#[tokio::main]
async fn main() -> Result<()> {
    let channel = Channel::from_shared(format!("http://{}", env::var("GATEPOST_GRPC")?))?.connect().await?;
    let message = auth::IntrospectRequest { token: env::var("ACCESS_TOKEN")?, ..Default::default() };
    let mut request = tonic::Request::new(message);
    let credentials = BASE64_STANDARD.encode(format!("api:{}", env::var("GATEPOST_API_SECRET")?));
    request.metadata_mut().insert("authorization", MetadataValue::try_from(format!("Basic {credentials}"))?);

    let response = IntrospectionServiceClient::new(channel).introspect(request).await?.into_inner();
    if response.active {
        println!("active: {}", response.sub);
    } else {
        println!("not active");
    }
    Ok(())
}
