using Google.Protobuf;
using Google.Protobuf.Collections;
using Grpc.Core;
using Grpc.Net.Client;
using Quantra.Client.Transport;
using Quantra.Client.Wire;
using Stub = Quantra.V1.ModelAdminService.ModelAdminServiceClient;

namespace Quantra.Client;

/// <summary>Changes which models a server serves, at the address of its <c>--admin-listen</c>. Safe to share between threads.</summary>
/// <remarks>
/// A call answers once the change is in force, and changes nothing where it fails. None is tried twice, and a model takes its time to
/// load: see <see cref="QuantraClientOptions.Timeout"/>. Models are named by reference, never by path, as they are in the server's folder.
/// </remarks>
/// <example>
/// <code>
/// await using var admin = new ModelAdminClient(new Uri("http://127.0.0.1:50052"));
/// foreach (var model in await admin.ReloadAsync("stock"))
///     Console.WriteLine(model);
/// </code>
/// </example>
public sealed class ModelAdminClient : IAsyncDisposable
{
    private const string Service = "quantra.v1.ModelAdminService";

    private readonly Connection _connection;
    private readonly Stub _stub;

    /// <summary>Opens a channel of its own; nothing is sent before the first call.</summary>
    /// <param name="address">Such as http://127.0.0.1:50052 or unix:/run/quantra/admin.sock.</param>
    /// <exception cref="ArgumentException">The address begins with neither http:// nor https:// nor unix:.</exception>
    public ModelAdminClient(Uri address)
        : this(address, new QuantraClientOptions())
    {
    }

    /// <summary>Opens a channel of its own; nothing is sent before the first call.</summary>
    /// <param name="address">Such as http://127.0.0.1:50052 or unix:/run/quantra/admin.sock.</param>
    /// <param name="options">Timeout, limits and credentials; a token needs the role admin.</param>
    /// <exception cref="ArgumentException">
    /// The address begins with neither http:// nor https:// nor unix:; the authorities' file holds no certificate.
    /// </exception>
    /// <exception cref="IOException">The authorities' file cannot be read.</exception>
    public ModelAdminClient(Uri address, QuantraClientOptions options)
        : this(Connection.To(address, options, Service, repeats: false))
    {
    }

    /// <summary>Uses a channel that stays the caller's, with its credentials: disposing this client leaves it open.</summary>
    /// <param name="channel">An open channel.</param>
    /// <param name="options">Timeout and limits; those of channels that a client opens itself have no effect.</param>
    public ModelAdminClient(GrpcChannel channel, QuantraClientOptions options)
        : this(Connection.Over(channel, options, Service))
    {
    }

    /// <summary>Calls through an invoker, for example one with interceptors, or a fake in a test.</summary>
    /// <param name="invoker">Makes the calls.</param>
    /// <param name="options">Timeout and limits; those of channels that a client opens itself have no effect.</param>
    public ModelAdminClient(CallInvoker invoker, QuantraClientOptions options)
        : this(Connection.Over(invoker, options, Service))
    {
    }

    private ModelAdminClient(Connection connection) => (_connection, _stub) = (connection, new Stub(connection.Invoker));

    /// <summary>Serves what the folder has under this reference; what is served already stays as it is.</summary>
    /// <param name="model">"NAME" or "NAME@VERSION".</param>
    /// <param name="cancellationToken">Cancels the call.</param>
    /// <returns>The versions of this model that are served then.</returns>
    /// <exception cref="QuantraException">It cannot be loaded; its Reason says why.</exception>
    public Task<IReadOnlyList<ModelInfo>> LoadAsync(ModelReference model, CancellationToken cancellationToken = default) =>
        CallAsync(_stub.LoadModelAsync, text => new V1.LoadModelRequest { Model = text }, answer => answer.Models, model, cancellationToken);

    /// <summary>Serves it no more; calls that wait for it are still answered.</summary>
    /// <param name="model">"NAME" or "NAME@VERSION".</param>
    /// <param name="cancellationToken">Cancels the call.</param>
    /// <returns>The versions of this model that are still served.</returns>
    /// <exception cref="QuantraException">It is not served, or the champion of others; its Reason says which.</exception>
    public Task<IReadOnlyList<ModelInfo>> UnloadAsync(ModelReference model, CancellationToken cancellationToken = default) =>
        CallAsync(_stub.UnloadModelAsync, text => new V1.UnloadModelRequest { Model = text }, answer => answer.Models, model, cancellationToken);

    /// <summary>Reads it again from the folder, and lets it take the place of what is served; a bad one leaves that serving.</summary>
    /// <param name="model">"NAME" or "NAME@VERSION".</param>
    /// <param name="cancellationToken">Cancels the call.</param>
    /// <returns>The versions of this model that are served then.</returns>
    /// <exception cref="QuantraException">It cannot be loaded; its Reason says why.</exception>
    public Task<IReadOnlyList<ModelInfo>> ReloadAsync(ModelReference model, CancellationToken cancellationToken = default) =>
        CallAsync(_stub.ReloadModelAsync, text => new V1.ReloadModelRequest { Model = text }, answer => answer.Models, model, cancellationToken);

    /// <summary>Takes no more calls, waits for those under way as long as the grace time, and closes the channel that this client opened.</summary>
    /// <returns>A task that completes when no call is under way any more.</returns>
    public ValueTask DisposeAsync() => _connection.DisposeAsync();

    private async Task<IReadOnlyList<ModelInfo>> CallAsync<TRequest, TResponse>(
        Func<TRequest, CallOptions, AsyncUnaryCall<TResponse>> method,
        Func<string, TRequest> write,
        Func<TResponse, RepeatedField<V1.ModelInfo>> models,
        ModelReference model,
        CancellationToken cancellationToken)
        where TRequest : IMessage
    {
        ArgumentNullException.ThrowIfNull(model);
        ArgumentNullException.ThrowIfNull(model.Text);
        var answer = await _connection.Calls.RunAsync(
            this,
            either => _connection.Caller.CallAsync(method, write(model.Text), model.Text, either),
            cancellationToken).ConfigureAwait(false);
        return [.. models(answer).Select(ResponseReader.Model)];
    }
}
