using Grpc.Core;

namespace Quantra.Client.Transport;

/// <summary>The token that is sent with each call.</summary>
internal sealed class CallToken
{
    /// <summary>The environment variable of the token that is sent where the options name none.</summary>
    private const string Variable = "QUANTRA_TOKEN";

    private readonly Func<CancellationToken, ValueTask<string?>> _ask;
    private readonly string? _plainTarget;

    private CallToken(Func<CancellationToken, ValueTask<string?>> ask, string? plainTarget) => (_ask, _plainTarget) = (ask, plainTarget);

    /// <summary>None: a channel of the caller's has its own credentials.</summary>
    public static CallToken None { get; } = new(_ => default, null);

    /// <summary>The token of a client that opens its own channel.</summary>
    public static CallToken Of(ServerAddress address, QuantraClientOptions options)
    {
        var found = Environment.GetEnvironmentVariable(Variable);
        return new(options.Token ?? (_ => new ValueTask<string?>(found)), address.IsSecret ? null : address.Text);
    }

    /// <summary>Adds the token to a call's headers.</summary>
    /// <exception cref="QuantraException">CONFIGURATION_INVALID: others could read it on its way, or no header can hold it.</exception>
    public async ValueTask AddToAsync(Metadata headers, CancellationToken cancellationToken)
    {
        var token = await _ask(cancellationToken).ConfigureAwait(false);
        if (string.IsNullOrEmpty(token))
            return;
        if (token.AsSpan().ContainsAnyExceptInRange('!', '~'))
            throw Refusal($"the token has a character that no header can have; look for a blank or line end in Token or {Variable}");
        if (_plainTarget is not null)
        {
            throw Refusal(
                $"the token would go to {_plainTarget} in plain text; write https://, or send none: no {Variable} in the environment, "
                + "or a Token that gives null");
        }

        headers.Add("authorization", $"Bearer {token}");
    }

    private static QuantraException Refusal(string message) =>
        new QuantraError(QuantraStatus.InvalidArgument, QuantraReason.ConfigurationInvalid, message).ToException();
}
