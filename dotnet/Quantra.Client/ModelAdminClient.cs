using Google.Protobuf;
using Google.Protobuf.Collections;
using Grpc.Core;
using Grpc.Net.Client;
using Quantra.Client.Transport;
using Quantra.Client.Wire;
using Stub = Quantra.V1.ModelAdminService.ModelAdminServiceClient;

namespace Quantra.Client;

/// <summary>Changes which models a server serves, through its <c>--admin-listen</c> address. Safe to share between threads.</summary>
/// <remarks>
/// A call returns when its change is in effect. A failed call changes nothing. Calls are never retried. Loading a model takes time, so set
/// <see cref="QuantraClientOptions.Timeout"/> accordingly. A reference names a model in the server's folder, not a path.
/// </remarks>
/// <example>
/// <code>
/// await using var admin = new ModelAdminClient(new Uri("http://127.0.0.1:50052"));
/// Console.WriteLine(await admin.ReloadAsync("stock"));
/// </code>
/// </example>
public sealed class ModelAdminClient : IAsyncDisposable
{
    private const string Service = "quantra.v1.ModelAdminService";

    private readonly ClientConnection _connection;
    private readonly Stub _stub;

    /// <summary>Creates a client with its own channel. The first call connects.</summary>
    /// <param name="address">For example http://127.0.0.1:50052 or unix:/run/quantra/admin.sock.</param>
    /// <exception cref="ArgumentException">The address begins with neither http:// nor https:// nor unix:.</exception>
    public ModelAdminClient(Uri address)
        : this(address, new QuantraClientOptions())
    {
    }

    /// <summary>Creates a client with its own channel. The first call connects.</summary>
    /// <param name="address">For example http://127.0.0.1:50052 or unix:/run/quantra/admin.sock.</param>
    /// <param name="options">Timeout, limits and credentials. A token needs the role admin.</param>
    /// <exception cref="ArgumentException">
    /// The address begins with neither http:// nor https:// nor unix:. Or the authority file has no certificate.
    /// </exception>
    /// <exception cref="IOException">The authority file cannot be read.</exception>
    public ModelAdminClient(Uri address, QuantraClientOptions options)
        : this(ClientConnection.To(address, options, Service, repeats: false))
    {
    }

    /// <summary>Creates a client on the caller's channel, with the channel's credentials. Disposing the client leaves the channel open.</summary>
    /// <param name="channel">An open channel.</param>
    /// <param name="options">Timeout and limits. Options of an own channel have no effect.</param>
    public ModelAdminClient(GrpcChannel channel, QuantraClientOptions options)
        : this(ClientConnection.Over(channel, options, Service))
    {
    }

    /// <summary>Creates a client on a call invoker, for example one with interceptors or a fake for tests.</summary>
    /// <param name="invoker">The call invoker.</param>
    /// <param name="options">Timeout and limits. Options of an own channel have no effect.</param>
    public ModelAdminClient(CallInvoker invoker, QuantraClientOptions options)
        : this(ClientConnection.Over(invoker, options, Service))
    {
    }

    private ModelAdminClient(ClientConnection connection)
    {
        (_connection, _stub) = (connection, new Stub(connection.Invoker));
        Lifecycle = new GrpcModelLifecycle(connection, this);
    }

    /// <summary>Compares the versions of a model and changes its champion, on a server with a ledger.</summary>
    public IModelLifecycle Lifecycle { get; }

    /// <summary>Loads models from the server's folder. Versions that are served already stay unchanged.</summary>
    /// <param name="model">"NAME" or "NAME@VERSION".</param>
    /// <param name="cancellationToken">Cancels the call.</param>
    /// <returns>The versions of this model that are served afterwards, and why others are not.</returns>
    /// <exception cref="QuantraException">No version can be loaded; see Reason.</exception>
    public async Task<LoadResult> LoadAsync(ModelReference model, CancellationToken cancellationToken = default)
    {
        var response = await CallAsync(_stub.LoadModelAsync, text => new V1.LoadModelRequest { Model = text }, model, cancellationToken).ConfigureAwait(false);
        return new(Models(response.Models), [.. response.Problems]);
    }

    /// <summary>Stops serving a model or version. Requests that are already queued are still answered.</summary>
    /// <param name="model">"NAME" or "NAME@VERSION".</param>
    /// <param name="cancellationToken">Cancels the call.</param>
    /// <returns>The versions of this model that are still served.</returns>
    /// <exception cref="QuantraException">The version is not served, or it is the champion of other versions; see Reason.</exception>
    public async Task<IReadOnlyList<ModelInfo>> UnloadAsync(ModelReference model, CancellationToken cancellationToken = default) =>
        Models((await CallAsync(_stub.UnloadModelAsync, text => new V1.UnloadModelRequest { Model = text }, model, cancellationToken).ConfigureAwait(false)).Models);

    /// <summary>Reads models from the folder again and replaces the served ones. Versions that cannot be read stay as they are served.</summary>
    /// <param name="model">"NAME" or "NAME@VERSION".</param>
    /// <param name="cancellationToken">Cancels the call.</param>
    /// <returns>The versions of this model that are served afterwards, and why others are not.</returns>
    /// <exception cref="QuantraException">No version can be loaded; see Reason.</exception>
    public async Task<LoadResult> ReloadAsync(ModelReference model, CancellationToken cancellationToken = default)
    {
        var response = await CallAsync(_stub.ReloadModelAsync, text => new V1.ReloadModelRequest { Model = text }, model, cancellationToken).ConfigureAwait(false);
        return new(Models(response.Models), [.. response.Problems]);
    }

    /// <summary>Rejects new calls, waits for running calls up to the grace time, and closes the client's own channel.</summary>
    /// <returns>A task that completes when all calls have ended.</returns>
    public ValueTask DisposeAsync() => _connection.DisposeAsync();

    private static IReadOnlyList<ModelInfo> Models(RepeatedField<V1.ModelInfo> models) => [.. models.Select(ResponseReader.Model)];

    private async Task<TResponse> CallAsync<TRequest, TResponse>(
        Func<TRequest, CallOptions, AsyncUnaryCall<TResponse>> method,
        Func<string, TRequest> write,
        ModelReference model,
        CancellationToken cancellationToken)
        where TRequest : IMessage
    {
        ArgumentNullException.ThrowIfNull(model);
        ArgumentNullException.ThrowIfNull(model.Text);
        return await _connection.Calls.RunAsync(
            this,
            linkedToken => _connection.Executor.CallAsync(method, write(model.Text), model.Text, linkedToken),
            cancellationToken).ConfigureAwait(false);
    }
}
